"""The connections of the protocols "row" and "advisory", one per claim: for threads and for tasks.

Law: a connection is kept for another claim only if it is idle and owns nothing; else it is closed.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from leaselock.backends.sql.seats import Seat
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from leaselock.backends.sql.script import Result, Script, Steps
    from leaselock.core.backend import Claim

# How much later than its wait a waiting statement may be answered.
GRACE = 1.0
TOO_OLD = "protocol advisory needs PostgreSQL 14 or newer: use protocol lease or row"


class Place:
    """A connection and its seat; one conversation at a time."""

    def __init__(self, line: Any, seat: Seat, mutex: Any) -> None:
        self.line = line
        self.seat = seat
        self.mutex = mutex
        self.settings: set[str] = set()
        self.ended = False
        self.gone = False


class Places:
    """Which connection belongs to which claim, and which to none."""

    def __init__(self, store: Any, ends: Any) -> None:
        self.store = store
        self.ends = ends
        self.serials = count()
        self.begin()

    def begin(self) -> None:
        """Nobody holds or waits."""
        self.places: dict[str, Place] = {}
        self.idle: dict[str, list[Place]] = {}

    def spare(self, claim: Claim) -> Place | None:
        """A connection of the claim's client that is idle."""
        idle = self.idle.get(claim.client, [])
        while idle:
            try:
                place = idle.pop()
            except IndexError:
                return None  # another thread was faster
            if not place.ended and place.line.fresh():
                return place
            self.shut(claim.client, place)
        return None

    def made(self, claim: Claim, line: Any, mutex: Any) -> Place:
        """A place on a new connection."""
        return Place(line, Seat(f"{claim.client}:{next(self.serials)}", line.backend), mutex)

    def lay_down(self, claim: Claim) -> None:
        """The claim is over, and its connection owns nothing."""
        place = self.places.pop(claim.id, None)
        if place is None:
            return
        place.seat.clear()
        if place.ended or not place.line.fresh():
            self.shut(claim.client, place)
        else:
            self.idle.setdefault(claim.client, []).append(place)

    def drop(self, claim: Claim) -> None:
        """The claim is over, whatever its connection owns."""
        place = self.places.pop(claim.id, None)
        if place is not None:
            self.shut(claim.client, place)

    def shut(self, client: str, place: Place) -> None:
        """End a connection, and so what it owns. Whoever is in a conversation on it closes it."""
        place.seat.token = None
        place.gone = True
        self.ends.of(client).remove(place)
        place.line.cut()
        if not place.mutex.locked():
            self.end(place)

    def end(self, place: Place) -> None:
        """Close it."""
        place.line.close()

    def check(self, claim: Claim, place: Place) -> None:
        """Before a conversation, and with its mutex: that the connection is still the claim's."""
        if self.places.get(claim.id) is not place:
            raise OutcomeUnknown(f"the claim to {claim.name!r} was given up meanwhile")

    def wake_all(self) -> None:
        """Wake everyone who waits: the client is closing."""
        for place in list(self.places.values()):
            if place.seat.token is None and not place.line.broken:
                place.line.cut()

    def interrupt(self) -> None:
        """No call lasts beyond its deadline but those that wait."""
        self.wake_all()

    def all(self) -> list[Place]:
        """Every connection."""
        return [*self.places.values(), *(p for idle in self.idle.values() for p in idle)]


def once(script: Script) -> Steps[list[Result]]:
    """A conversation of one script."""
    return (yield script)


def refuse(store: Any, protocol: str, settings: set[str]) -> None:
    """Refused, where the way to the server, or the server, cannot keep a session's promise."""
    if not store.greeted.alone:
        raise NotApplied(
            f"between us and {store.target.shown} is a proxy, and protocol {protocol!r} needs a "
            "session of its own: use protocol 'lease', connect to the server itself, or say "
            "?proxy=session if the proxy pools whole sessions"
        )
    postgres = store.target.dialect == "postgres"
    if protocol == "advisory" and postgres and "idle_session_timeout" not in settings:
        raise NotApplied(TOO_OLD)
