"""Planted bugs of read/write locks and semaphores: the rules that most stores share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.modes import LIMIT
from verification.simulation.plant import planted

from leaselock._backends.memory.store import MemoryRow
from leaselock._core.contract import backend
from leaselock._core.contract.backend import Mismatch, Release, Released, Resized
from leaselock._core.rows import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    import pytest

    from leaselock._core.contract.backend import (
        Acquire,
        Busy,
        Claim,
        Convert,
        Converted,
        HoldRecord,
        Resize,
    )

# A reader behind a writer behind an update that waits for another one: only the writer excludes it.
CHAIN = ("update", "update", "update", "exclusive", "shared", "shared")


def _promote_past(patch: pytest.MonkeyPatch, passed: Callable[[Claim], bool]) -> None:
    """Let a hand-off pass over the claims that must wait, if they are *passed*."""

    def promote(row: rules.LockRow) -> None:
        holds = list(row.holds())
        if len(holds) == 1 and holds[0].mode == "upgrading":
            row.put(holds[0]._replace(mode="exclusive", token=row.draw()))
        if any(hold.mode in rules.EXCLUSIVE_MODES for hold in row.holds()):
            return
        for claim in list(rules.waiting(row, row.queue())):
            if backend.compatible(holds, claim, row.limit):
                row.quit(claim.id)
                holds.append(rules.grant(row, claim, rules.CONFIRM_WITHIN, offered=True))
            elif not passed(claim):
                return

    patch.setattr(rules, "promote", promote)


@planted("modes")
def dead_claim_stays(patch: pytest.MonkeyPatch) -> None:
    """The claim of a dead client goes on blocking those behind it."""
    patch.setattr(rules, "waiting", lambda row, claims: iter(list(claims)))


@planted("modes")
def downgrade_does_not_promote(patch: pytest.MonkeyPatch) -> None:
    """A conversion to a weaker mode grants no waiter."""
    real = rules.convert

    def convert(row: rules.LockRow, request: Convert) -> Converted:
        with patch.context() as inner:
            if request.mode != "exclusive":
                inner.setattr(rules, "grant_and_notify", lambda row, before, asker: ())
            return real(row, request)

    patch.setattr(rules, "convert", convert)


@planted("modes")
def downgrade_frees(patch: pytest.MonkeyPatch) -> None:
    """A conversion to a weaker mode ends the hold."""
    real = rules.convert

    def convert(row: rules.LockRow, request: Convert) -> Converted:
        hold = rules.find(row, request.claim.id)
        if hold is not None and request.mode == "shared" and hold.mode == "exclusive":
            row.remove(hold.id)
        return real(row, request)

    patch.setattr(rules, "convert", convert)


@planted("modes ending")
def first_waiter_not_notified(patch: pytest.MonkeyPatch) -> None:
    """The new first waiter is not notified, so it does not know when the holds end."""

    def notify_changes(row: rules.LockRow, before: rules.Seen, asker: str) -> None:
        for hold in row.holds():
            if hold.id != asker and before.modes.get(hold.id) != hold.mode:
                row.notify(hold.id, hold.client)

    patch.setattr(rules, "notify_changes", notify_changes)


@planted("modes deaths", settings={"modes.DeathsScenario.lock_modes": CHAIN})
def first_waiter_watched(patch: pytest.MonkeyPatch) -> None:
    """A waiter watches the first waiter, and not the nearest one that it conflicts with."""
    real = rules._enqueue

    def enqueue(
        row: rules.LockRow, request: Acquire, holds: Sequence[HoldRecord], blocker: Claim | None
    ) -> Busy:
        return real(row, request, holds, rules.first(row) if blocker is not None else None)

    patch.setattr(rules, "_enqueue", enqueue)


@planted("numbered")
def number_after_the_others(patch: pytest.MonkeyPatch) -> None:
    """A permit gets the number of those that are held, although a lower one may be free."""

    def next_numbers(taken: Sequence[int], permits: int) -> tuple[int, ...]:
        return tuple(range(len(taken), len(taken) + permits))

    patch.setattr(rules, "lowest_free", next_numbers)


@planted("numbered")
def waiter_gets_highest_number(patch: pytest.MonkeyPatch) -> None:
    """A waiter that is granted permits gets the highest free numbers."""
    real = rules.promote

    def highest_free(taken: Sequence[int], permits: int) -> tuple[int, ...]:
        return tuple(sorted({*range(LIMIT)} - {*taken})[-permits:])

    def promote(row: rules.LockRow) -> None:
        with patch.context() as inner:
            inner.setattr(rules, "lowest_free", highest_free)
            real(row)

    patch.setattr(rules, "promote", promote)


@planted("numbered")
def number_changes_with_the_confirmation(patch: pytest.MonkeyPatch) -> None:
    """The confirmation of a grant chooses numbers again, as if its own belonged to another hold."""
    patch.setattr(rules, "slots_of", lambda metadata: ())


@planted("modes")
def handoff_for_whole_lease(patch: pytest.MonkeyPatch) -> None:
    """A waiter is granted the lock for its whole lease, before it has confirmed that it is
    alive.
    """
    real = rules.grant

    def grant(row: rules.LockRow, claim: Claim, lasts: float, **offered: Any) -> HoldRecord:
        return real(row, claim, claim.lease, **offered)

    patch.setattr(rules, "grant", grant)


@planted("modes")
def handoff_to_one_reader(patch: pytest.MonkeyPatch) -> None:
    """A release grants the lock to one of several readers that wait."""
    real, all_waiting = rules.promote, rules.waiting

    def one(row: rules.LockRow, claims: Iterable[Claim]) -> Iterator[Claim]:
        for claim in all_waiting(row, claims):
            yield claim
            if not row.queued(claim.id):
                return

    def promote(row: rules.LockRow) -> None:
        with patch.context() as inner:
            inner.setattr(rules, "waiting", one)
            real(row)

    patch.setattr(rules, "promote", promote)


@planted("modes", faults={"slow": 0.1, "delay": 0.005, "freeze": 0.0})
def late_conversion_applied(patch: pytest.MonkeyPatch) -> None:
    """A conversion that arrives late is applied: the number of the conversion is not compared."""
    real = rules.convert

    def convert(row: rules.LockRow, request: Convert) -> Converted:
        hold = rules.find(row, request.claim.id)
        return real(row, request if hold is None else request._replace(step=hold.step + 1))

    patch.setattr(rules, "convert", convert)


@planted("modes")
def leaving_waiter_does_not_promote(patch: pytest.MonkeyPatch) -> None:
    """A waiter that leaves the queue does not let in those behind it."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        if row.quit(request.claim.id):
            return Released("waiting", ())
        return real(row, request)

    patch.setattr(rules, "release", release)


@planted("modes")
def new_reader_ignores_queue(patch: pytest.MonkeyPatch) -> None:
    """A new reader, or a try, does not stand behind the queue."""
    patch.setattr(rules, "_passes", lambda ahead, claim: True)


@planted("modes")
def no_tombstone(patch: pytest.MonkeyPatch) -> None:
    """A late request of a released claim is granted."""
    patch.setattr(MemoryRow, "has_tombstone", lambda self, claim_id: False)


@planted("modes")
def permits_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """One permit more than the limit is granted."""
    real = backend.compatible

    def compatible(others: Sequence[Claim | HoldRecord], claim: Claim, limit: int = 0) -> bool:
        return real(others, claim, limit + 1)

    patch.setattr("leaselock._core.rows.rules.compatible", compatible)


@planted("modes")
def reader_beside_writer(patch: pytest.MonkeyPatch) -> None:
    """A reader is granted beside a writer."""
    patch.setitem(
        backend.COMPATIBLE_MODES, "shared", backend.COMPATIBLE_MODES["shared"] | {"exclusive"}
    )
    patch.setattr(rules, "EXCLUSIVE_MODES", frozenset({"upgrading"}))


@planted("modes")
def reader_enters_while_upgrading(patch: pytest.MonkeyPatch) -> None:
    """A new reader is granted while an upgrade waits."""
    patch.setitem(
        backend.COMPATIBLE_MODES, "shared", backend.COMPATIBLE_MODES["shared"] | {"upgrading"}
    )
    patch.setattr(rules, "EXCLUSIVE_MODES", frozenset({"exclusive"}))


@planted("modes")
def reader_passes_writer_at_handoff(patch: pytest.MonkeyPatch) -> None:
    """A hand-off lets readers in that stand behind a writer."""
    _promote_past(patch, lambda claim: claim.mode != "permits")


@planted("modes")
def readers_are_counted(patch: pytest.MonkeyPatch) -> None:
    """The limit of 1 permit of a lock counts readers, too."""
    real = backend.compatible

    def compatible(others: Sequence[Claim | HoldRecord], claim: Claim, limit: int = 0) -> bool:
        counted = [other for other in others if other.permits]
        return real(others, claim, limit) and (claim.mode == "permits" or not counted)

    patch.setattr("leaselock._core.rows.rules.compatible", compatible)


@planted("modes")
def release_does_not_promote(patch: pytest.MonkeyPatch) -> None:
    """A release grants nothing: the waiters have to ask."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        with patch.context() as inner:
            inner.setattr(rules, "grant_and_notify", lambda row, before, asker: ())
            return real(row, request)

    patch.setattr(rules, "release", release)


@planted("modes")
def release_ends_all_holds(patch: pytest.MonkeyPatch) -> None:
    """The release of one reader ends all holds."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        if rules.find(row, request.claim.id) is not None:
            for hold in row.holds():
                if hold.id != request.claim.id:
                    row.remove(hold.id)
        return real(row, request)

    patch.setattr(rules, "release", release)


@planted("modes")
def repeat_goes_to_the_tail(patch: pytest.MonkeyPatch) -> None:
    """A waiter that asks again goes to the tail of the queue."""
    real = MemoryRow.join

    def join(self: MemoryRow, claim: Claim) -> None:
        self.entry.queue.pop(claim.id, None)
        real(self, claim)

    patch.setattr(MemoryRow, "join", join)


@planted("modes")
def resize_evicts(patch: pytest.MonkeyPatch) -> None:
    """A smaller limit takes their permits from the holders that exceed it."""
    real = rules.resize

    def resize(row: rules.LockRow, request: Resize) -> Resized:
        used = 0
        for hold in row.holds():
            used += hold.permits
            if hold.mode == "permits" and used > request.limit:
                row.remove(hold.id)
        return real(row, request)

    patch.setattr(rules, "resize", resize)


@planted("modes")
def resize_leaves_large_claims(patch: pytest.MonkeyPatch) -> None:
    """A claim for more permits than a new limit stays in the queue."""

    def resize(row: rules.LockRow, request: Resize) -> Resized:
        before = rules.seen(row)
        row.limit = request.limit
        return Resized(row.limit, rules.grant_and_notify(row, before, ""))

    patch.setattr(rules, "resize", resize)


@planted("modes")
def shared_may_upgrade(patch: pytest.MonkeyPatch) -> None:
    """A reader may become a writer."""
    patch.setattr("leaselock._core.client.mutex.STRENGTH", dict.fromkeys(backend.STRENGTH, 0))


@planted("modes")
def small_claim_passes_large_one(patch: pytest.MonkeyPatch) -> None:
    """A claim for one permit overtakes an earlier one for more."""
    _promote_past(patch, lambda claim: claim.mode == "permits")


@planted("modes")
def two_updates(patch: pytest.MonkeyPatch) -> None:
    """Two updates hold at once."""
    patch.setitem(
        backend.COMPATIBLE_MODES, "update", backend.COMPATIBLE_MODES["update"] | {"update"}
    )


@planted("modes")
def upgrade_ignores_readers(patch: pytest.MonkeyPatch) -> None:
    """An update becomes exclusive beside its readers."""
    real = rules.convert

    def convert(row: rules.LockRow, request: Convert) -> Converted:
        hold = rules.find(row, request.claim.id)
        if hold is not None and request.mode == "exclusive" and hold.mode == "update":
            row.put(hold._replace(mode="exclusive", step=request.step, token=row.draw()))
        return real(row, request)

    patch.setattr(rules, "convert", convert)


@planted("modes")
def upgrade_keeps_token(patch: pytest.MonkeyPatch) -> None:
    """A completed upgrade keeps its token."""
    real = rules.promote

    def promote(row: rules.LockRow) -> None:
        holds = row.holds()
        if len(holds) == 1 and holds[0].mode == "upgrading":
            row.put(holds[0]._replace(mode="exclusive"))
        real(row)

    patch.setattr(rules, "promote", promote)


@planted("modes")
def upgrade_not_completed_on_release(patch: pytest.MonkeyPatch) -> None:
    """The last reader that leaves does not complete an upgrade."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        reply = real(row, request)
        for hold in row.holds():
            if hold.mode == "exclusive" and hold.step % 2 and hold.client != request.claim.client:
                row.put(hold._replace(mode="upgrading"))
        return reply

    patch.setattr(rules, "release", release)


@planted("modes")
def upgrade_releases_first(patch: pytest.MonkeyPatch) -> None:
    """An upgrade that has to wait gives up its update hold."""
    real = rules.convert

    def convert(row: rules.LockRow, request: Convert) -> Converted:
        hold = rules.find(row, request.claim.id)
        if hold is not None and request.mode == "exclusive" and len(row.holds()) > 1:
            row.remove(hold.id)
        return real(row, request)

    patch.setattr(rules, "convert", convert)


@planted("modes")
def upgrade_waits_for_the_queue(patch: pytest.MonkeyPatch) -> None:
    """An upgrade waits until the queue is empty, which waits for it."""
    real = rules.promote

    def promote(row: rules.LockRow) -> None:
        holds = row.holds()
        if not (len(holds) == 1 and holds[0].mode == "upgrading" and row.has_queue()):
            real(row)

    patch.setattr(rules, "promote", promote)


@planted("modes")
def writer_beside_reader(patch: pytest.MonkeyPatch) -> None:
    """A writer is granted beside readers and updates."""
    patch.setitem(
        backend.COMPATIBLE_MODES,
        "exclusive",
        backend.COMPATIBLE_MODES["exclusive"] | {"shared", "update"},
    )


@planted("modes")
def readers_share_a_token(patch: pytest.MonkeyPatch) -> None:
    """A reader that is granted beside another one gets the token of that."""
    real = rules.grant

    def grant(
        row: rules.LockRow, claim: Claim, lasts: float, *, offered: bool = False
    ) -> HoldRecord:
        hold = real(row, claim, lasts, offered=offered)
        for other in row.holds():
            if hold.mode == other.mode == "shared" and other.id != hold.id:
                hold = hold._replace(token=other.token)
        row.put(hold)
        return hold

    patch.setattr(rules, "grant", grant)


@planted("modes")
def known_limit_refused(patch: pytest.MonkeyPatch) -> None:
    """A claim that names the number of permits is refused while the semaphore is in use."""
    real = rules._mismatch

    def mismatch(row: rules.LockRow, claim: Claim) -> Mismatch | None:
        if claim.limit and rules.in_use(row) is not None and not row.queued(claim.id):
            return Mismatch(row.limit)
        return real(row, claim)

    patch.setattr(rules, "_mismatch", mismatch)
