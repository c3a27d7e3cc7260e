"""Planted bugs of the lock itself, played on SQLite. Their names have no prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from verification.simulation.plant import planted

from leaselock._backends.memory.store import MemoryRow
from leaselock._core.client import acquisition, timing
from leaselock._core.client.attempts import Attempts
from leaselock._core.client.claim_registry import ClaimRegistry
from leaselock._core.client.hold import Hold, State
from leaselock._core.client.late_requests import LateRequests
from leaselock._core.client.renewer import Renewer
from leaselock._core.contract.backend import Acquire, Busy, Grant, Mismatch, Release, Released
from leaselock._core.contract.effects import FOREVER, Sleep
from leaselock._core.rows import rules
from leaselock._core.rows.queue import NodeBackend, QueueBackend
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    import pytest

    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.contract.backend import Claim, HoldRecord
    from leaselock.errors import StoreError


@planted("sqlite")
def cancelled_waiter_stays_queued(patch: pytest.MonkeyPatch) -> None:
    """A waiter whose time has passed stays in the queue (hazard E6)."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        if rules.find(row, request.claim.id) is None:
            return Released("waiting", ())
        return real(row, request)

    patch.setattr(rules, "release", release)


@planted("sqlite")
def confirmed_without_lease(patch: pytest.MonkeyPatch) -> None:
    """A hand-off is confirmed without extending the grant to the whole lease."""
    real = rules.acquire

    def acquire(row: rules.LockRow, request: Acquire) -> Grant | Busy | Mismatch:
        held = rules.find(row, request.claim.id)
        if held is not None:
            return Grant(held.token, row.notified())
        return real(row, request)

    patch.setattr(rules, "acquire", acquire)


@planted("sqlite")
def expires_early(patch: pytest.MonkeyPatch) -> None:
    """The store ends a lease after half of its duration."""
    real = rules.expired

    def over(row: rules.LockRow, held: HoldRecord) -> bool:
        lease = 1.0
        return real(row, held) or held.expires - lease / 2 <= row.now

    patch.setattr(rules, "expired", over)


@planted("sqlite")
def handoff_without_wakeup(patch: pytest.MonkeyPatch) -> None:
    """A lock is handed off without waking the waiter (hazard E1)."""

    patch.setattr(MemoryRow, "notify", lambda self, claim_id, client: None)


@planted("sqlite")
def last_come_first_served(patch: pytest.MonkeyPatch) -> None:
    """The last waiter is served first (hazard E5)."""

    def queue(self: MemoryRow) -> list[Claim]:
        return [*reversed(self.entry.queue.values())]

    patch.setattr(MemoryRow, "queue", queue)


@planted("sqlite")
def lost_reply_is_refusal(patch: pytest.MonkeyPatch) -> None:
    """A request without a reply counts as a refusal (hazard D1)."""

    real = Attempts.failed

    def failed(self: Attempts, error: StoreError) -> None:
        if not isinstance(error, OutcomeUnknown):
            real(self, error)
            return
        if not self.known:
            self.registry.forget(self.hold)
        raise NotApplied(str(error)) from error

    patch.setattr(Attempts, "failed", failed)


@planted("sqlite")
def nested_acquire_uncounted(patch: pytest.MonkeyPatch) -> None:
    """A nested acquire is not counted, so the inner release frees the lock (hazard A7)."""

    def give(self: Hold, lease: LeaseHandle) -> None:
        self.references = (lease.reference,)

    patch.setattr(Hold, "give", give)


@planted("sqlite")
def no_expiry(patch: pytest.MonkeyPatch) -> None:
    """Neither the death of its client nor time ends a hold (hazard A1)."""

    def over(row: rules.LockRow, held: HoldRecord) -> bool:
        return False

    patch.setattr(rules, "expired", over)


@planted("sqlite")
def no_local_expiry(patch: pytest.MonkeyPatch) -> None:
    """A holder considers its lease valid until a reply says otherwise (hazard C1)."""

    def is_valid(self: Hold, now: float) -> bool:
        return self.state is State.HELD

    patch.setattr(Hold, "is_valid", is_valid)


@planted("sqlite")
def no_pending_releases(patch: pytest.MonkeyPatch) -> None:
    """A cancelled acquire does not release its claim (hazards D1, F1)."""

    def release_later(self: ClaimRegistry, hold: Hold, *, lost: bool = False) -> None:
        self.backend.forget(hold.claim)
        self.remove(hold)

    patch.setattr(ClaimRegistry, "release_later", release_later)


@planted("sqlite")
def no_tombstone(patch: pytest.MonkeyPatch) -> None:
    """A cancelled claim can still be granted by a late request (hazard D2)."""

    def tombstone(self: MemoryRow, holder: str) -> None:
        return None

    patch.setattr(MemoryRow, "tombstone", tombstone)


@planted("sqlite")
def one_renewal_per_round(patch: pytest.MonkeyPatch) -> None:
    """The renewer renews one lease in each round and skips the others (hazard C4)."""

    def is_due(self: Renewer, hold: Hold, now: float) -> bool:
        return hold is self.registry.held()[0] and hold.renew and hold.is_valid(now)

    patch.setattr(Renewer, "_is_due", is_due)


@planted("sqlite")
def queue_jumped(patch: pytest.MonkeyPatch) -> None:
    """A request for a free lock is granted although other clients wait (hazard E5)."""

    def promote(row: rules.LockRow) -> None:
        for claim in row.queue():
            row.notify(claim.id, claim.client)

    patch.setattr(rules, "promote", promote)
    patch.setattr(rules, "_passes", lambda ahead, claim: True)


@planted("sqlite")
def release_unchecked(patch: pytest.MonkeyPatch) -> None:
    """A release frees the lock of any holder (hazard A2)."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        for held in row.holds():
            if not row.quit(request.claim.id):
                row.remove(held.id)
                row.put(held._replace(id=request.claim.id))
        return real(row, request)

    patch.setattr(rules, "release", release)


@planted("sqlite")
def renewal_from_reply(patch: pytest.MonkeyPatch) -> None:
    """The validity of a renewal is counted from its reply (hazard B2)."""
    real = Renewer._renewed

    def renewed(self: Renewer, hold: Hold, asked: float, lease: float) -> None:
        real(self, hold, self.registry.env.now(), lease)

    patch.setattr(Renewer, "_renewed", renewed)


@planted("sqlite")
def renewal_shortens(patch: pytest.MonkeyPatch) -> None:
    """A renewal sets the end of the lease to half its length from now (hazard C8)."""

    def renew(row: rules.LockRow, claim: Claim) -> bool:
        held = rules.find(row, claim.id)
        if held is None:
            return False
        row.put(held._replace(expires=row.now + claim.lease / 2))
        return True

    patch.setattr(rules, "renew", renew)


@planted("sqlite")
def renewal_unchecked(patch: pytest.MonkeyPatch) -> None:
    """A renewal succeeds for any claim (hazard A4)."""

    def renew(row: rules.LockRow, claim: Claim) -> bool:
        for held in row.holds():
            row.put(held._replace(expires=row.now + claim.lease))
        return True

    patch.setattr(rules, "renew", renew)


@planted("sqlite")
def timeout_restarts(patch: pytest.MonkeyPatch) -> None:
    """A wake-up may extend the wait beyond its timeout, as in kazoo 2.11 (hazard B13)."""
    real = QueueBackend.await_wakeup

    async def await_wakeup(self: QueueBackend, claim: Claim, until: float) -> None:
        await real(self, claim, until + 0.5)

    patch.setattr(QueueBackend, "await_wakeup", await_wakeup)


@planted("sqlite")
def token_repeated(patch: pytest.MonkeyPatch) -> None:
    """A hand-off repeats the token of the previous grant."""
    real = rules.grant

    def grant(
        row: rules.LockRow, claim: Claim, lasts: float, *, offered: bool = False
    ) -> HoldRecord:
        entry = cast("MemoryRow", row).entry
        before = entry.token
        held = real(row, claim, lasts, offered=offered)
        if offered:
            held = held._replace(token=before)
            row.put(held)
            entry.token = before
        return held

    patch.setattr(rules, "grant", grant)


@planted("sqlite")
def validity_from_reply(patch: pytest.MonkeyPatch) -> None:
    """The validity of a grant is counted from its reply (hazard B2)."""
    real = acquisition._valid_until

    def valid_until(registry: ClaimRegistry, claim: Claim, grant: Grant, sent_at: float) -> float:
        return real(registry, claim, grant, registry.env.now())

    patch.setattr(acquisition, "_valid_until", valid_until)


@planted("sqlite")
def wakeup_lost(patch: pytest.MonkeyPatch) -> None:
    """A wake-up that arrives while a request is in flight is discarded (hazard E1)."""
    real = NodeBackend.acquire

    async def acquire(self: NodeBackend, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        reply = await real(self, claim, wait=wait, until=until)
        if wait:
            await Sleep(0.0)
            self.signals[claim.id].clear()
        return reply

    patch.setattr(NodeBackend, "acquire", acquire)


@planted("sqlite")
def release_not_repeated(patch: pytest.MonkeyPatch) -> None:
    """The renewer never repeats a release that was not answered."""

    async def release(self: LateRequests, free_until: float) -> None:
        return

    patch.setattr(LateRequests, "next_release", lambda self: FOREVER)
    patch.setattr(LateRequests, "release", release)


@planted("sqlite")
def too_little_time(patch: pytest.MonkeyPatch) -> None:
    """A request is given less time than the store needs for it."""
    patch.setattr(timing, "TRY_TIMEOUT", 0.0005)
