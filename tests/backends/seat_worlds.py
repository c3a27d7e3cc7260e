"""Two worlds of sessions, in which the library's own conversations are held: a real database, and
the simulation's model of one.

Law: each claim that holds or waits has a session to itself, and what is nobody's own another one.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from tests.servers.databases import emptied
from tests.servers.postgres import Postgres
from tests.servers.process import eventually
from tests.simulation.sql_client import Titles
from tests.simulation.sql_server import Server

from leaselock.backends.sql.nodes import Store
from leaselock.backends.sql.script import SqlError, asked, dialect_of
from leaselock.backends.sql.seats import Own, Seat, Seats
from leaselock.backends.sql.url import parsed
from leaselock.core.backend import Acquire, BreakLock, Inspect, Release, Released, Renew
from leaselock.drivers import system_env
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.mariadb import MariaDB

    from leaselock.backends.sql.script import Result, Script
    from leaselock.core.backend import Claim

ANSWERED, SILENCE = 20.0, 600.0
# Seconds that a wait may last: until somebody ends it, or no time at all.
LONG, BRIEF = 15.0, 0.01
BLOCKED = {
    "postgres": "SELECT count(*) FROM pg_stat_activity WHERE pid = {} AND wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.processlist p WHERE id = {0} AND (state = "
    "'User lock' OR EXISTS (SELECT 1 FROM information_schema.innodb_trx WHERE "
    "trx_mysql_thread_id = {0} AND trx_state = 'LOCK WAIT'))",
}
THERE = {
    "postgres": "SELECT count(*) FROM pg_stat_activity WHERE pid = {}",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE id = {}",
}


class Place:
    """A session on one side, and who sits there."""

    def __init__(self, line: Any, seat: Seat) -> None:
        self.line = line
        self.seat = seat


class World:
    """One side: a place for each claim, and one session for what is nobody's own."""

    def __init__(self, seats: Seats, protocol: str) -> None:
        self.seats = seats
        self.protocol = protocol
        self.places: dict[str, Place] = {}
        self.idle: dict[str, list[Place]] = {}
        self.serials = count()
        self.shared, _ = self.connect()

    def connect(self) -> tuple[Any, int]:
        """Another session, and its number in the server."""
        raise NotImplementedError

    def run(self, line: Any, script: Script) -> list[Result]:
        """Have a session carry out a script."""
        raise NotImplementedError

    def lives(self, line: Any) -> bool:
        """Whether the server has not ended it."""
        raise NotImplementedError

    def end(self, line: Any) -> None:
        """End it."""
        raise NotImplementedError

    def drive(self, place: Place | None, steps: Any) -> Any:
        """A conversation, from here to its end."""
        return self.go_on(place, steps, lambda: next(steps))

    def go_on(self, place: Place | None, steps: Any, begin: Callable[[], Any]) -> Any:
        """The rest of one."""
        try:
            item = begin()
            while True:
                line = place.line if place and isinstance(item, Own) else self.shared
                try:
                    results = self.run(line, item.script)
                except SqlError as error:
                    item = steps.throw(error)
                else:
                    item = steps.send(results)
        except StopIteration as done:
            return done.value

    def answer(self, request: Any) -> object:
        """What a request comes to, of those that do not wait."""
        if isinstance(request, Acquire):
            return self._ask(request)
        if isinstance(request, Release):
            return self._leave(request.claim)
        if isinstance(request, Renew):
            return tuple(self._lives(claim) for claim in request.claims)
        if isinstance(request, Inspect):
            return self.drive(None, self.seats.inspect(self.protocol, request))
        assert isinstance(request, BreakLock)
        return self.drive(None, self.seats.break_lock(self.protocol, request))

    def place(self, claim: Claim) -> Place | None:
        """Where a claim sits, if its session lives."""
        place = self.places.get(claim.id)
        return place if place is not None and self.lives(place.line) else None

    def _ask(self, request: Acquire) -> object:
        claim = request.claim
        place = self.place(claim)
        if place is None:
            idle = self.idle.get(claim.client)
            place = idle.pop() if idle else self.begun(claim)
            place.seat.claim, place.seat.protocol = claim, self.protocol
            self.places[claim.id] = place
        reply = self.drive(place, self.seats.ask(place.seat, request))
        if place.seat.token is None and not request.wait:
            self.lay_down(claim)
        return reply

    def begun(self, claim: Claim) -> Place:
        """A place on a new session."""
        line, number = self.connect()
        place = Place(line, Seat(f"{claim.client}:{next(self.serials)}", number))
        self.sit(place)
        return place

    def sit(self, place: Place) -> None:
        """Set up its session."""
        self.drive(place, self.seats.tenancy(SILENCE))

    def _leave(self, claim: Claim) -> Released:
        place = self.place(claim)
        if place is None:
            return Released("absent", ())
        held = place.seat.token is not None
        self.drive(place, self.seats.free(place.seat))
        self.lay_down(claim)
        return Released("held" if held else "waiting", ())

    def _lives(self, claim: Claim) -> bool:
        place = self.place(claim)
        if place is not None:
            self.drive(place, self.seats.alive())
        return place is not None

    def lay_down(self, claim: Claim) -> None:
        """The claim is over; its session is for the next of its client."""
        place = self.places.pop(claim.id)
        place.seat.clear()
        self.idle.setdefault(claim.client, []).append(place)

    def die(self, client: str) -> None:
        """A client's sessions end, all of them."""
        seats = [place.seat.claim for place in self.places.values()]
        for claim in [claim for claim in seats if claim and claim.client == client]:
            self.stop(claim)
        for place in self.idle.pop(client, []):
            self.end(place.line)

    def stop(self, claim: Claim) -> None:
        """The claim's session is over."""
        place = self.places.pop(claim.id, None)
        if place is not None:
            self.end(place.line)


class Real(World):
    """The server, and somebody who looks at it as its administrator."""

    def __init__(self, server: Postgres | MariaDB, protocol: str) -> None:
        self.server = server
        self.store = Store(parsed(f"{emptied(server)}?session={SILENCE}"), system_env.now)
        self.dialect = self.store.dialect
        self.lines: list[Any] = []
        self.witness, _ = self.connect()
        super().__init__(Seats(self.dialect), protocol)

    def connect(self) -> tuple[Any, int]:
        """A connection of the library's."""
        line = self.store.connect(system_env.now() + ANSWERED)
        self.lines.append(line)
        return line, line.backend

    def run(self, line: Any, script: Script) -> list[Result]:
        """As the library does."""
        return asked(line, self.dialect, script, system_env.now() + ANSWERED)

    def sit(self, place: Place) -> None:
        """MySQL's waits for rows have a limit of their session."""
        super().sit(place)
        if self.dialect.rings:
            self.run(place.line, _raw(f"SET SESSION innodb_lock_wait_timeout = {LONG:.0f}"))

    def lives(self, line: Any) -> bool:
        """As the server has it."""
        text = THERE[self.dialect.name].format(line.backend)
        return bool(self.run(self.witness, _raw(text))[0].rows[0][0])

    def blocked(self, line: Any) -> bool:
        """Whether it waits for a lock, as the administrator sees it."""
        return bool(self.server.query(BLOCKED[self.dialect.name].format(line.backend))[0][0])

    def end(self, line: Any) -> None:
        """And wait until the server has seen it, which MySQL may take its time for."""
        if isinstance(self.server, Postgres):
            line.cut()
        else:
            self.server.do(f"KILL {line.backend}")
        eventually(lambda: not self.lives(line))


class Modelled(World):
    """The model; its waits end when they are told to."""

    def __init__(self, protocol: str) -> None:
        self.clock = count(1)
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.server = Server(self.clock.__next__, lambda *timer: self.timers.append(timer))
        super().__init__(Seats(Titles(*dialect_of("postgres"))), protocol)

    def connect(self) -> tuple[Any, int]:
        """A session."""
        session = self.server.begin(lambda: None)
        return session, session.number

    def run(self, line: Any, script: Script) -> list[Result]:
        """All but a wait is answered at once."""
        got: list[Any] = []
        self.server.ask(line, script, got.append)
        if not got:
            raise OutcomeUnknown("the session is over, or waits")
        return outcome(got[0])

    def lives(self, line: Any) -> bool:
        """What the server knows."""
        return bool(line.alive)

    def end(self, line: Any) -> None:
        """At once."""
        self.server.end(line)


def _raw(text: str) -> Script:
    return (("raw", {"text": text}),)


def outcome(got: Any) -> list[Result]:
    """The results, or the error raised."""
    if isinstance(got, SqlError):
        raise got
    results: list[Result] = got
    return results
