"""One claim of this client: a row of its table (`ClaimRegistry.table`). It reads no clock.

The row exists from before the first request of the claim until the store has certainly forgotten
it, so there is no moment at which the store may know a claim and the client does not.

    ASKING ──▶ WAITING ──▶ HELD ──── detach ────▶ ENDED
       │          │         ├─ release ▶ ENDING ── done ──▶ ENDED
       └──────────┴─ release ▶ ENDING    └─ lose ─▶ LOST
                            └─ lose ──────────────▶ LOST

A conversion is no state: the hold stays valid meanwhile (`pending_conversion`). It is renewed in
HELD only, so no renewal can follow a release (hazard A12). It is valid until `valid_until`; the
first step that finds this time passed makes it LOST.

Whether a row is wanted is not counted but read: it is *in hand* while one of its leases
(`LeaseHandle`) is alive and has not ended, or while the operation that ends one still runs. The
renewer ends every row that is not in hand (`lease_reference`, `unfinished`). So an operation that
is interrupted, cancelled or dropped at any line has nothing to undo.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from leaselock._core.client.callbacks import UNCONFIRMED_DANGER, calls, calls_while_held
from leaselock._core.client.lease_reference import LeaseReference
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import LeaseLost

if TYPE_CHECKING:
    import weakref
    from collections.abc import Awaitable, Callable

    from leaselock._core.client.callbacks import Callback, DangerCallback
    from leaselock._core.client.conversion_state import PendingConversion, SharedUpgrade
    from leaselock._core.client.lease_reference import Lease
    from leaselock._core.contract.backend import Claim, Mode
    from leaselock._core.contract.effects import BodyInterrupter, Owner, OwnerThread

# Why a hold was lost.
TAKEN = "the store reports another holder, or the lock was broken by force"
RAN_OUT = "its time ran out before a renewal was confirmed"
FIXED = "its fixed lease is over"
BOUNDED = "it was held for max_hold, and is not renewed beyond that"
CLIENT_CLOSED = "the client was closed"
NOT_OURS = "at its release the store no longer had this hold"
UNCONFIRMED = "the store did not confirm its release, so it stays locked until its lease ends"


class State(StrEnum):
    """Where a claim is in its life."""

    ASKING = "asking"
    """Its first request is about to be sent, or was not answered yet."""
    WAITING = "waiting"
    """The store has answered that the lock is taken."""
    HELD = "held"
    ENDING = "ending"
    """Its release is about to be sent, or was not answered yet."""
    ENDED = "ended"
    """The store does not have it, or it was detached."""
    LOST = "lost"
    """It was held, and its owner may not count on it any more. The store may still have it."""


TRANSITIONS = {
    (State.ASKING, "busy"): State.WAITING,
    (State.ASKING, "grant"): State.HELD,
    (State.WAITING, "grant"): State.HELD,
    (State.ASKING, "release"): State.ENDING,
    (State.WAITING, "release"): State.ENDING,
    (State.HELD, "release"): State.ENDING,
    (State.HELD, "detach"): State.ENDED,
    (State.HELD, "lose"): State.LOST,
    (State.ENDING, "done"): State.ENDED,
    (State.ENDING, "lose"): State.LOST,
}
ASKED = (State.ASKING, State.WAITING)


class QueueObserver(Protocol):
    """What follows the queue of a hold's lock (`contention.Contention`)."""

    seen: bool
    """Whether others waited at the last look."""

    def start(self) -> Awaitable[None]:
        """Begin."""
        ...

    def stop(self) -> None:
        """The hold has ended, or its client is closing."""
        ...


def no_owner() -> None:
    """The owner of a hold that belongs to no thread or task, such as an adopted one."""


def no_lock() -> None:
    """The lock object of an adopted lease."""


class Hold:
    """What the client knows of one claim."""

    # What most claims do not change is an attribute of the class: 2 % of a pair, with all of them.

    # --- who wants it
    state = State.ASKING
    references: tuple[LeaseReference, ...] = ()
    """Its leases: the first acquisition, and those of its owner that are nested in it."""
    lock: Callable[[], object] = staticmethod(no_lock)
    """The lock object through which it is acquired."""
    cancelled = False
    """`Mutex.cancel` has ended its wait."""
    owner: Callable[[], Owner | None] = staticmethod(no_owner)
    acquirer: weakref.ref[Owner] | None = None
    """Who acquired it, if a wait blocks the thread that it runs in."""
    thread: OwnerThread | None = None
    """That thread."""
    call_site = ""
    """Where the user acquired it, if that is recorded."""
    owned = True
    """False for an adopted hold: the client does not release it when it closes."""

    # --- what was granted (`acquisition`, `ClaimRegistry.grant`)
    token = 0
    began = 0.0
    """When the request that was granted was sent; before the grant, the first one."""
    slots: tuple[int, ...] = ()
    """The numbers of its permits, of a numbered semaphore."""
    uncertain = False
    """A request of its acquisition was not answered, so its release leaves a tombstone."""
    valid_until = 0.0
    max_valid_until = FOREVER
    """The end of a fixed lease, or of max_hold, which no renewal moves."""
    reason = ""
    """Why it was lost."""
    reported = False
    """Its loss was reported."""

    # --- its renewal (written by the renewer and by `ClaimRegistry.schedule`)
    renew = True
    fixed = False
    """Its lease is a fixed one, whether nested leases have it renewed now or not."""
    provisional = False
    """The store has it for a shorter time than its lease, until the first renewal."""
    next_check = FOREVER
    """When the renewer must look at it."""
    retrying = False
    """Its last renewal failed: the next one is sent at `next_check`, not earlier with others."""
    failure = ""
    """Why."""
    renewals = 0

    # --- its conversion to another mode (`conversion`, `upgrade`)
    conversions = 0
    """How many conversions were requested."""
    pending_conversion: PendingConversion | None = None
    """The last one, if it makes the mode weaker and the store has not confirmed that."""
    upgrade: SharedUpgrade | None = None
    """The conversion to exclusive, while someone waits for it."""

    # --- its end, where the renewer is to release it (`unfinished`, `ClaimRegistry.release_later`)
    release_until = 0.0
    """Until when the renewer tries to release it; 0 if that is not its task."""
    release_from = 0.0
    """When it begins: while callbacks report the loss; or of a lease that was dropped."""
    dropped = False
    """Its user has dropped the lease, and may still count on it: it is released when it expires."""

    # --- what its owner has asked for
    contention: QueueObserver | None = None
    """Whether others wait for the lock, once that was asked."""
    interrupters: tuple[BodyInterrupter, ...] = ()

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    # --- who has it in hand -----------------------------------------------------------------------

    def give(self, lease: Lease) -> None:
        """Another lease has it in hand from now on, in one assignment."""
        self.references = (*filter(LeaseReference.in_hand, self.references), lease.reference)

    def in_hand(self) -> bool:
        """Whether a lease has not ended, or an operation that ends one still runs."""
        return any(map(LeaseReference.in_hand, self.references))

    def leases(self) -> list[Lease]:
        """The leases that have not ended, in the order in which they began."""
        handles = [reference() for reference in self.references if reference.end is None]
        return [each for each in handles if each is not None]

    def has_lease(self) -> bool:
        """Whether there is one."""
        for reference in self.references:
            if reference.end is None and reference() is not None:
                return True
        return False

    def has_operation(self) -> bool:
        """Whether an operation of a thread or task is under way for it."""
        if self.state in ASKED or self.state is State.ENDING:
            return self.in_hand()
        pending = self.pending_conversion
        converts = pending is not None and pending.sender() is not None
        waits = self.upgrade is not None
        return waits or converts or (self.in_hand() and not self.has_lease())

    @property
    def depth(self) -> int:
        """How many leases share it."""
        return len(self.leases())

    @property
    def modes(self) -> list[Mode]:
        """The modes of the leases that have not ended."""
        return [lease.mode for lease in self.leases()]

    # --- what becomes of it -----------------------------------------------------------------------

    def transition(self, event: str) -> bool:
        """Go to the next state; return False, and change nothing, if *event* leads nowhere."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            return False
        self.state = following
        return True

    def grant(
        self,
        token: int,
        valid_until: float,
        *,
        renew: bool = True,
        max_valid_until: float = FOREVER,
    ) -> None:
        """The store has granted the claim."""
        self.token = token
        self.valid_until = valid_until
        if not renew:
            self.fixed, self.renew, self.max_valid_until = True, False, valid_until
        if max_valid_until < FOREVER:
            self.max_valid_until = max_valid_until
        # Last: one that was interrupted before is not granted yet.
        self.state = State.HELD

    def lose(self, reason: str) -> bool:
        """Mark the hold as lost and interrupt its bodies; return whether it was not lost before."""
        lost = self.mark_lost(reason)
        if lost:
            self.interrupt_bodies()
        return lost

    def mark_lost(self, reason: str) -> bool:
        """Mark the hold as lost; return whether it was not lost before."""
        if not self.transition("lose"):
            return False
        self.reason = reason
        return True

    def interrupt_bodies(self) -> None:
        """Interrupt its bodies: it is lost."""
        for interrupter in self.interrupters:
            interrupter.interrupt()

    # --- its validity -----------------------------------------------------------------------------

    def is_valid(self, now: float) -> bool:
        """Whether the owner may act on the hold at *now*. If not, a renewal whose reply arrives
        later does not make it valid again: the owner may have read that it is lost.
        """
        self.expire(now)
        return self.state is State.HELD

    def expire(self, now: float) -> None:
        """Mark the hold as lost if its time has passed."""
        if self.state is State.HELD and now >= self.valid_until:
            ended = BOUNDED if self.renew else FIXED
            ran_out = f"{RAN_OUT} ({self.failure})" if self.failure else RAN_OUT
            self.lose(ended if self.valid_until >= self.max_valid_until else ran_out)

    def check(self, now: float, store: str) -> None:
        """Raise LeaseLost, which names the *store*, unless the hold is valid."""
        self.expire(now)
        if self.state is State.LOST:
            raise self.lost(store)

    def lost(self, store: str) -> LeaseLost:
        """The error that says how the hold was lost."""
        return LeaseLost(self.claim.name, self.token, self.reason, store)

    def remaining(self, now: float) -> float:
        """Seconds for which the hold stays valid without a renewal."""
        return max(0.0, self.valid_until - now) if self.state is State.HELD else 0.0

    def confirmed(self, until: float) -> None:
        """The store has renewed the hold. A renewal never shortens its validity."""
        self.valid_until = max(self.valid_until, min(until, self.max_valid_until))
        self.renewals += 1
        self.provisional = False
        self.failure = ""

    @property
    def prolonged(self) -> bool:
        """Whether a nested lease has a fixed one renewed."""
        return self.fixed and self.renew

    def prolong(self) -> None:
        """A nested lease needs the renewal of a fixed one."""
        self.renew, self.max_valid_until = True, FOREVER

    def end_prolonging(self) -> None:
        """One has ended. After the last one the lease is fixed again, for the time that is left."""
        if not any(lease.prolongs for lease in self.leases()):
            self.renew = False
            self.max_valid_until = self.next_check = self.valid_until

    # --- when the renewer has to look at it -------------------------------------------------------

    def due_at(self) -> float:
        """When the renewer has to renew or convert it, or to report its loss. A release has a time
        of its own. While an operation is under way, nothing is due: what interrupts it wakes the
        renewer.
        """
        if self.release_until:
            return FOREVER  # whatever its state: the renewer looks at it no more
        if self.state is State.LOST and not self.reported:
            return 0.0
        if self.state is not State.HELD:
            return FOREVER
        if self.pending_conversion is not None and self.has_lease():
            return min(self.next_check, self.next_conversion())
        return self.next_check

    def next_conversion(self) -> float:
        """When the renewer repeats a conversion of the hold."""
        pending = self.pending_conversion
        if pending is None or pending.sender() is not None or self.state is not State.HELD:
            return FOREVER
        return pending.repeat_at

    # --- the functions of its user ----------------------------------------------------------------

    def take_loss_callbacks(self) -> list[Callback]:
        """The functions to call for the loss. Each is returned once."""
        found: list[Callback] = []
        for reference in self.references:
            if (lease := reference()) is not None and lease.loss_callbacks:
                callbacks, lease.loss_callbacks = lease.loss_callbacks, ()
                found += calls(lease, callbacks)
        return found

    def danger_at(self) -> float:
        """When the next function for a lease in danger is due, unless it is renewed before."""
        if self.state is not State.HELD:
            return FOREVER
        warnings = [each for lease in self.leases() for each in lease.danger_callbacks]
        return min(map(self._danger_at, warnings), default=FOREVER)

    def _danger_at(self, warning: DangerCallback) -> float:
        seconds = min(warning[0], UNCONFIRMED_DANGER) if self.provisional else warning[0]
        return self.valid_until - seconds

    def take_danger_callbacks(self, now: float) -> list[Callback]:
        """The functions that are due. Each is returned once."""
        found: list[Callback] = []
        for lease in self.leases():
            due = [each for each in lease.danger_callbacks if self._danger_at(each) <= now]
            lease.danger_callbacks = [each for each in lease.danger_callbacks if each not in due]
            found += calls_while_held(lease, [callback for _, callback in due])
        return found
