"""What a client reports about its locks while it works: for logs, metrics and traces.

Nothing is built without a listener. A listener is a function of the user: it is called through
an effect, outside the monitor, by the thread or task to which the event happens. Listeners of rare
events hear of everything but releases, renewals in time, and the events of acquires, unless one
fails or waits for `LONG_WAIT`. The events of renewals are reported by an operation of their own: no
listener delays a renewal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from leaselock._core.contract.effects import CallUser
from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.client.hold import Hold
    from leaselock._core.client.inspection import Holder

EventKind = Literal[
    "acquiring",  # an acquire begins
    "busy",  # another owner holds the lock: the acquire waits, or gives up at once
    "waiting",  # the acquire has waited for LONG_WAIT, and goes on: reported once
    "outage",  # the store is out of reach: the acquire repeats its request, as its caller wants
    "granted",
    "timed_out",
    "failed",  # the acquire ended with an error of the store
    "cancelled",  # the acquire was cancelled or interrupted, or its client closed
    "renewed",
    "renewal_failed",  # it will be tried again
    "lost",
    "released",
    "broken",  # by this client, by force
]

# Seconds.
LONG_WAIT = 30.0
# A renewal that is confirmed with less than this part of its lease left is late: it is due when
# two thirds are left.
LATE = 1 / 3

Listener: TypeAlias = "Callable[[Event], object]"


class Event(NamedTuple):
    """Something that happened to a lock of this client. `Client.on_event` reports it.

    >>> client.on_event(lambda event: print(event.kind, event.name, event.seconds))
    acquiring order:5 0.0
    granted order:5 0.002
    """

    kind: EventKind
    """What happened."""
    name: str
    """The name of the lock."""
    id: str
    """The same for all events of one acquisition."""
    at: float
    """When, on the clock of `time.clock_gettime(time.CLOCK_BOOTTIME)`."""
    seconds: float = 0.0
    """How long: held ("released", "lost"); left of the lease at a renewal ("renewed",
    "renewal_failed"); waited (all others).
    """
    lease: float = 0.0
    """The length of the lease; at a renewal, for how long one makes the hold valid."""
    token: int | None = None
    """The fencing token, of a hold."""
    holder: Holder | None = None
    """Who had the lock, for "busy", "waiting", "timed_out" and "broken", if the store knows it."""
    reason: str = ""
    """Why, for "failed", "outage", "cancelled", "renewal_failed" and "lost"; for
    "timed_out" and "cancelled" also, if the store has not confirmed that the claim has left it.
    """


class Listeners:
    """The listeners of a client's events."""

    __slots__ = ("all", "rare")

    def __init__(self) -> None:
        self.all: list[Listener] = []
        self.rare: list[Listener] = []

    def of_rare(self) -> list[Listener]:
        """The listeners of a rare event."""
        return self.all + self.rare

    async def report(self, event: Event, *, rare: bool) -> None:
        """Report an event."""
        for listener in self.of_rare() if rare else self.all:
            await CallUser(listener, event)


def hold_event(kind: EventKind, hold: Hold, now: float, seconds: float, reason: str = "") -> Event:
    """An event of a hold."""
    claim, token = hold.claim, hold.token
    return Event(kind, claim.name, claim.id, now, seconds, claim.lease, token, reason=reason)


async def ask_note(note: Callable[[], str]) -> str:
    """What the user's function wants to be stored with the next claim."""
    return str(await CallUser(lambda _: note(), None) or "")
