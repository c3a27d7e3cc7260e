"""The claims of a client that wait for documents, or watch them, and what wakes each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends.document.row import ROLL_POSITIONS
from leaselock._core.client import timing
from leaselock._core.contract.effects import FOREVER, Signal, Wait
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock._backends.document.content import Content
    from leaselock._core.contract.backend import Claim

# For how many seconds a listener goes on reporting a name after its last waiter: that one holds the
# lock now, and a client that knows the present document releases it with one request.
LINGER = 5.0


class Waiter:
    """One claim that may be woken."""

    __slots__ = ("answered", "name", "waits", "watches")

    def __init__(self, name: str) -> None:
        self.name = name
        self.waits = False
        """It was answered, and not granted: its name is to be reported."""
        self.watches = False
        """Every change of the holds wakes it."""
        self.answered = FOREVER
        """When a request of it to acquire was last answered."""


class Waiters:
    """The waiters of one client, by their claims, and the names that are reported for them."""

    def __init__(
        self, wake: Callable[[Sequence[str]], None], now: Callable[[], float], *, listens: bool
    ) -> None:
        self.wake, self.now, self.listens = wake, now, listens
        self.reset()

    def reset(self) -> None:
        """Nothing waits."""
        self.by_claim: dict[str, Waiter] = {}
        # Until when each name is to be reported. The names that the listener was told, and what
        # interrupts the renewer once it has begun to wait: both written by `wait_and_listen`.
        self.report_until: dict[str, float] = {}
        self.told_listener: dict[str, Any] = {}
        self.changed: Signal | None = None

    def expect(self, claim: Claim) -> None:
        """The claim may be woken from now on."""
        if claim.id not in self.by_claim:
            self.by_claim[claim.id] = Waiter(claim.name)

    def forget(self, claim_id: str) -> None:
        """The claim waits no more."""
        waiter = self.by_claim.pop(claim_id, None)
        if waiter is not None and waiter.waits and self.listens:
            self.report_until[waiter.name] = self.now() + LINGER

    def note_answer(self, claim_id: str) -> None:
        """The claim was answered now: what was seen before is too old for its next answer."""
        if (waiter := self.by_claim.get(claim_id)) is not None:
            waiter.answered = self.now()

    def answered(self, claim_id: str) -> float:
        """When the claim was last answered."""
        waiter = self.by_claim.get(claim_id)
        return FOREVER if waiter is None else waiter.answered

    def watch(self, claim_id: str) -> None:
        """Wake the claim with every change of the holds."""
        if (waiter := self.by_claim.get(claim_id)) is not None:
            waiter.watches = True

    def names(self) -> set[str]:
        """The names that are waited for."""
        return {waiter.name for waiter in self.by_claim.values()}

    # --- the listener

    def listen_to(self, claim_id: str) -> None:
        """Have the name reported from now on, if the claim waits for it."""
        waiter = self.by_claim.get(claim_id)
        if waiter is None:
            return
        waiter.waits = True
        if waiter.name not in self.told_listener and self.listens and self.changed is not None:
            self.changed.set()

    def to_report(self) -> list[str]:
        """The names that the listener is to report."""
        now = self.now()
        # In the order of the claims, as no set of texts is: a run can be repeated.
        waits = [waiter.name for waiter in self.by_claim.values() if waiter.waits]
        waited = dict.fromkeys(waits, FOREVER)
        self.report_until = {
            name: until
            for name, until in self.report_until.items()
            if until > now and name not in waited
        }
        self.report_until |= waited
        return list(self.report_until)

    # --- what wakes whom

    def wake_all_of(self, name: str) -> None:
        """Let every waiter for the name ask."""
        self.wake([claim_id for claim_id, waiter in self.by_claim.items() if waiter.name == name])

    def wake_concerned(self, name: str, before: Content, content: Content, asker: str) -> None:
        """Wake of the claims to the name, except for the *asker*:

        * those that hold, when the holds have changed;
        * the first waiter, when the holds have changed, or when it is a new one;
        * of an offer also those behind it, which may have to show that they are alive;
        * those that neither hold nor wait any more;
        * those that watch, when the holds have changed, or when the first waiter has come.
        """
        if not self.by_claim:
            return
        holders, holds = _holders(before), _holders(content)
        queue = [claim.id for claim in content.queue]
        head_changed = queue[:1] != [claim.id for claim in before.queue[:1]]
        for_watchers = holds != holders or (head_changed and not before.queue)
        concerned: set[str] = set()
        if holds != holders:
            concerned |= {hold_id for hold_id, _, _ in holds}
            offered = any(held.record.offered for held in content.holds)
            concerned |= set(queue[: ROLL_POSITIONS if offered else 1])
        if head_changed:
            concerned |= set(queue[:1])
        known = {*queue, *(hold_id for hold_id, _, _ in holds)}
        self.wake(
            [
                claim_id
                for claim_id, waiter in self.by_claim.items()
                if waiter.name == name and claim_id != asker
                if claim_id in concerned
                or (for_watchers if waiter.watches else claim_id not in known)
            ]
        )


def _holders(content: Content) -> list[tuple[str, str, int]]:
    """Who holds the lock, and how."""
    return [(held.record.id, held.record.mode, held.record.token) for held in content.holds]


class Turns:
    """Let one claim of a client ask at a time for each name: they would only be in the way of one
    another. What ends or keeps a hold does not wait for its turn.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.reset()

    def reset(self) -> None:
        """No request is under way."""
        # Claims that wait for their turn, by the names that one asks for.
        self.waiting: dict[str, list[Signal]] = {}

    async def take(self, name: str, until: float, seen_at: Callable[[str], float]) -> bool:
        """Wait for the turn. False if it did not come in time because others outrun the claims
        before; NotApplied if the store did not answer them. *seen_at* is when a document was seen.
        """
        turns = self.waiting.get(name)
        if turns is None:
            self.waiting[name] = []
            return True
        turn, began = Signal(), self.now()
        turns.append(turn)
        try:
            await Wait(turn, until)
            # In the short time that a last request may have, no other one may have been answered.
            since = min(began, until - timing.TRY_TIMEOUT)
            if not turn.is_set and seen_at(name) <= since:
                late = f"earlier requests for {name!r} were not answered in time"
                raise NotApplied(late, "unreachable")
        except BaseException:
            if turn.is_set:
                self.pass_on(name)
            elif turn in turns:
                turns.remove(turn)
            raise
        if not turn.is_set:
            turns.remove(turn)
        return turn.is_set

    def pass_on(self, name: str) -> None:
        """The turn of the next one."""
        turns = self.waiting.get(name)
        if turns:
            turns.pop(0).set()
        else:
            self.waiting.pop(name, None)
