"""One hold of a lock, as its client knows it: its state and its validity. Pure: the time is
handed in.

      ┌──── detach ──────────────────┐
    HELD ── release ──▶ RELEASING ── done ──▶ FREE
      └──── lose ───────────┴──────▶ LOST

A hold is renewed in HELD only, so no renewal can follow a release (hazard A12). It is valid until
`valid_until`; the first step that finds this time passed makes it LOST.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

from leaselock._core.effects import FOREVER, BodyInterrupter, Owner, Signal
from leaselock.errors import LeaseLost

if TYPE_CHECKING:
    import weakref
    from collections.abc import Awaitable

    from leaselock._core.backend import Claim
    from leaselock._core.effects import OwnerThread

# Why a hold was lost.
TAKEN = "the store reports another holder, or the lock was broken by force"
RAN_OUT = "its time ran out before a renewal was confirmed"
FIXED = "its fixed lease is over"
BOUNDED = "it was held for max_hold, and is not renewed beyond that"
CLIENT_CLOSED = "the client was closed"
NOT_OURS = "at its release the store no longer had this hold"
UNCONFIRMED = "the store did not confirm its release, so it stays locked until its lease ends"


class State(StrEnum):
    """Where a hold is in its life."""

    HELD = "held"
    RELEASING = "releasing"
    FREE = "free"
    LOST = "lost"


TRANSITIONS = {
    (State.HELD, "release"): State.RELEASING,
    (State.HELD, "detach"): State.FREE,
    (State.HELD, "lose"): State.LOST,
    (State.RELEASING, "done"): State.FREE,
    (State.RELEASING, "lose"): State.LOST,
}


# A function of the user and its argument.
Callback = tuple[Callable[[Any], object], object]
# The function, the user's lease, its handle, and a function that makes a new lease of the handle.
# The references are weak: otherwise a hold would keep itself alive.
LossCallback = tuple[
    Callable[[Any], object], "weakref.ref[Any]", "weakref.ref[Any]", Callable[[Any], object]
]
# Such a callback, and how many seconds of the lease are left when it is called.
DangerCallback = tuple[float, LossCallback]
# A grant that must be confirmed lasts for two seconds: this many seconds before its end the
# callbacks for a lease in danger are called, if it was not confirmed by then.
UNCONFIRMED_DANGER = 0.5


class QueueObserver(Protocol):
    """What follows the queue of a hold's lock (`contention.Contention`)."""

    seen: bool
    """Whether others waited at the last look."""
    callbacks: list[LossCallback]
    """What to call when others begin to wait."""

    def start(self) -> Awaitable[None]:
        """Begin."""
        ...

    def stop(self) -> None:
        """The hold has ended, or its client is closing."""
        ...


class UpgradeState:
    """The wait of one or several threads or tasks for a hold to become exclusive. One of them asks
    the store; the others wait for its replies.
    """

    __slots__ = ("answered", "answered_at", "asking", "changed", "sent", "waits")

    def __init__(self) -> None:
        self.waits = 0
        self.asking = False
        # The number of the last request, and of the last one that was answered.
        self.sent = self.answered = 0
        self.answered_at = 0.0
        self.changed = Signal()

    def notify(self) -> None:
        """The one that asks has a reply, or has left: the others look again."""
        changed, self.changed = self.changed, Signal()
        changed.set()


def no_owner() -> None:
    """The owner of a hold that belongs to no thread or task, such as an adopted one."""


class Hold:
    """What a client knows of one grant."""

    # What most holds do not change is an attribute of the class: 2 % of a pair, with all of them.
    state = State.FREE
    reason = ""
    reported = False
    """Its loss was reported to the listeners."""
    began = 0.0
    """When the request that was granted was sent."""
    slots: tuple[int, ...] = ()
    """The numbers of its permits, of a numbered semaphore."""
    renewals = 0
    conversions = 0
    """How many conversions were requested."""
    conversion_pending = False
    """The outcome of the last one is unknown, or it has yet to be requested."""
    convert_at = 0.0
    """When the renewer repeats it."""
    weakening = 0
    """How many conversions to a weaker mode are in flight: the renewer does not repeat them yet."""
    upgrade: UpgradeState | None = None
    """The wait for the hold to become exclusive, if there is one."""
    upgrade_number = -1
    """The number of the last conversion to exclusive."""
    next_check = FOREVER
    """When the renewer must look at the lease."""
    retrying = False
    """Its last renewal failed: the next one is sent at `next_check`, not earlier with others."""
    uncertain = False
    """A request of its acquisition was not answered, so its release leaves a tombstone."""
    provisional = False
    """The store has it for a shorter time than its lease, until the first renewal."""
    owned = True
    """False for an adopted hold: the client does not release it when it closes."""
    owner: Callable[[], Owner | None] = staticmethod(no_owner)
    acquirer: weakref.ref[Owner] | None = None
    """Who acquired it, if a wait blocks the thread that it runs in."""
    thread: OwnerThread | None = None
    """That thread."""
    loss_callbacks: Sequence[LossCallback] = ()
    danger_callbacks: Sequence[DangerCallback] = ()
    """What to call when a given time is left of the lease. Each is called once."""
    contention: QueueObserver | None = None
    """Whether others wait for the lock, once that was asked."""
    prolonged = 0
    """How many nested leases have this fixed lease renewed until their release."""
    interrupters: tuple[BodyInterrupter, ...] = ()
    is_unlocked = False
    """There is no lock: the store was out of reach, and the caller goes on without it."""
    call_site = ""
    """Where the user acquired it, if that is recorded."""

    def __init__(self, claim: Claim, token: int, valid_until: float, *, renew: bool) -> None:
        self.claim = claim
        self.token = token
        self.valid_until = valid_until
        self.renew = renew
        # The end of a fixed lease, or of max_hold, which no renewal moves.
        self.max_valid_until = FOREVER if renew else valid_until
        # The modes of the leases that share this hold: nested acquisitions of its owner.
        self.modes = [claim.mode]
        # Last: one that was interrupted before is no hold yet.
        self.state = State.HELD

    @classmethod
    def unlocked(cls, claim: Claim) -> Self:
        """What an owner that goes on without the lock has instead of a hold. It never ends by
        itself, no store and no renewer knows it, and its token is smaller than every other.
        """
        hold = cls(claim, 0, FOREVER, renew=True)
        hold.is_unlocked = True
        return hold

    def __del__(self) -> None:
        if self.state is State.HELD and self.owned:
            site = f", acquired at:\n{self.call_site}" if self.call_site else ""
            text = f"the lease on {self.claim.name!r} (token {self.token}) was dropped while held"
            # Whatever records the warning must not keep this object alive: it would be renewed.
            del self
            warnings.warn(f"{text}{site}", ResourceWarning, stacklevel=2)

    @property
    def depth(self) -> int:
        """How many leases share this hold."""
        return len(self.modes)

    def transition(self, event: str) -> bool:
        """Go to the next state; return False, and change nothing, if *event* leads nowhere."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            return False
        self.state = following
        return True

    def lose(self, reason: str) -> bool:
        """Mark the hold as lost and interrupt its bodies; return whether it was not lost before."""
        if not self.transition("lose"):
            return False
        self.reason = reason
        for interrupter in self.interrupters:
            interrupter.interrupt()
        return True

    def take_callbacks(self) -> list[Callback]:
        """The callbacks to call for the loss. Each is returned once."""
        callbacks, self.loss_callbacks = self.loss_callbacks, ()
        return calls(callbacks)

    def danger_at(self) -> float:
        """When the next callback for a lease in danger is due, unless it is renewed before."""
        if not self.danger_callbacks or self.state is not State.HELD:
            return FOREVER
        return min(map(self._danger_at, self.danger_callbacks))

    def _danger_at(self, warning: DangerCallback) -> float:
        seconds = min(warning[0], UNCONFIRMED_DANGER) if self.provisional else warning[0]
        return self.valid_until - seconds

    def take_danger_callbacks(self, now: float) -> list[Callback]:
        """The callbacks that are due, of leases that were not released. Each is returned once."""
        due = [each for each in self.danger_callbacks if self._danger_at(each) <= now]
        self.danger_callbacks = [each for each in self.danger_callbacks if each not in due]
        return calls([each for _, each in due if not getattr(each[2](), "released", True)])

    def next_conversion(self) -> float:
        """When the renewer repeats a conversion of the hold."""
        waits = self.conversion_pending and not self.weakening and self.state is State.HELD
        return self.convert_at if waits else FOREVER

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
            self.lose(ended if self.valid_until >= self.max_valid_until else RAN_OUT)

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

    def prolong(self) -> None:
        """A nested lease needs the renewal of a fixed one."""
        self.prolonged += 1
        self.renew, self.max_valid_until = True, FOREVER

    def end_prolonging(self) -> None:
        """It has ended. After the last one the lease is fixed again, for the time that is left."""
        self.prolonged -= 1
        if not self.prolonged:
            self.renew = False
            self.max_valid_until = self.next_check = self.valid_until

    def confirmed(self, until: float) -> None:
        """The store has renewed the hold. A renewal never shortens its validity."""
        self.valid_until = max(self.valid_until, min(until, self.max_valid_until))
        self.renewals += 1
        self.provisional = False


def calls(callbacks: Sequence[LossCallback]) -> list[Callback]:
    """The functions to call, each with its lease."""
    return [
        (callback, lease() or wrap(handle))
        for callback, lease, known, wrap in callbacks
        if (handle := known()) is not None
    ]
