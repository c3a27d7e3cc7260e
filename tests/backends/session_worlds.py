"""Sessions of a real database, and of the model of one, for the conversations of the library.

Each claim that holds or waits has its own session. One more session executes other scripts.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from tests.backends.sessions import Direct, finished
from tests.servers.databases import emptied
from tests.servers.postgres import Postgres
from tests.servers.process import eventually
from tests.simulation.sql_connection import ByName
from tests.simulation.sql_server import Server

from leaselock.backends.sql.session_locks import Session, SessionLocks
from leaselock.backends.sql.statements import SqlError, dialect_of
from leaselock.backends.sql.store import store_of
from leaselock.backends.sql.url import parsed
from leaselock.core.backend import Acquire, BreakLock, Inspect, Release, Released, Renew
from leaselock.drivers import system_env
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.mariadb import MariaDB

    from leaselock.backends.sql.statements import Result, Script
    from leaselock.core.backend import Claim

SILENCE = 600.0
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
    """A connection on one side, and the state of its session."""

    def __init__(self, connection: Any, session: Session) -> None:
        self.connection = connection
        self.session = session


class WorldExecutor:
    """Executes scripts on one connection of a world."""

    def __init__(self, world: World, connection: Any) -> None:
        self.world = world
        self.connection = connection

    async def execute(self, script: Script) -> list[Result]:
        """Execute a script."""
        return self.world.run(self.connection, script)


class World:
    """One side: a place for each claim, and one more session."""

    def __init__(self, locks: SessionLocks, protocol: str) -> None:
        self.locks = locks
        self.protocol = protocol
        self.places: dict[str, Place] = {}
        self.idle: dict[str, list[Place]] = {}
        self.serials = count()
        self.shared, _ = self.connect()

    def connect(self) -> tuple[Any, int]:
        """Another session, and its number in the server."""
        raise NotImplementedError

    def run(self, connection: Any, script: Script) -> list[Result]:
        """Have a session carry out a script."""
        raise NotImplementedError

    def lives(self, connection: Any) -> bool:
        """Whether the server has not ended it."""
        raise NotImplementedError

    def end(self, connection: Any) -> None:
        """End it."""
        raise NotImplementedError

    def own(self, place: Place) -> Any:
        """Executes scripts on the connection of a place."""
        return WorldExecutor(self, place.connection)

    def shared_executor(self, script: Script) -> Any:
        """Executes a script on the other session."""
        return WorldExecutor(self, self.shared).execute(script)

    def answer(self, request: Any) -> object:
        """What a request comes to, of those that do not wait."""
        if isinstance(request, Acquire):
            return self._ask(request)
        if isinstance(request, Release):
            return self._leave(request.claim)
        if isinstance(request, Renew):
            return tuple(self._lives(claim) for claim in request.claims)
        if isinstance(request, Inspect):
            return finished(self.locks.inspect(self.protocol, request, self.shared_executor))
        assert isinstance(request, BreakLock)
        return finished(self.locks.break_lock(self.protocol, request, self.shared_executor))

    def place(self, claim: Claim) -> Place | None:
        """Where a claim sits, if its session lives."""
        place = self.places.get(claim.id)
        return place if place is not None and self.lives(place.connection) else None

    def _ask(self, request: Acquire) -> object:
        claim = request.claim
        place = self.place(claim)
        if place is None:
            idle = self.idle.get(claim.client)
            place = idle.pop() if idle else self.begun(claim)
            place.session.claim, place.session.protocol = claim, self.protocol
            self.places[claim.id] = place
        reply: object = finished(
            self.locks.acquire(place.session, request, self.own(place), self.shared_executor)
        )
        if place.session.token is None and not request.wait:
            self.lay_down(claim)
        return reply

    def begun(self, claim: Claim) -> Place:
        """A place on a new session."""
        connection, number = self.connect()
        place = Place(connection, Session(f"{claim.client}:{next(self.serials)}", number))
        self.sit(place)
        return place

    def sit(self, place: Place) -> None:
        """Set up its session."""
        finished(self.locks.prepare(SILENCE, self.own(place)))

    def _leave(self, claim: Claim) -> Released:
        place = self.place(claim)
        if place is None:
            return Released("absent", ())
        held = place.session.token is not None
        finished(self.locks.release(place.session, self.own(place)))
        self.lay_down(claim)
        return Released("held" if held else "waiting", ())

    def _lives(self, claim: Claim) -> bool:
        place = self.place(claim)
        if place is not None:
            finished(self.locks.ping(self.own(place)))
        return place is not None

    def lay_down(self, claim: Claim) -> None:
        """The claim is over; its session is for the next of its client."""
        place = self.places.pop(claim.id)
        place.session.clear()
        self.idle.setdefault(claim.client, []).append(place)

    def die(self, client: str) -> None:
        """A client's sessions end, all of them."""
        claims = [place.session.claim for place in self.places.values()]
        for claim in [claim for claim in claims if claim and claim.client == client]:
            self.stop(claim)
        for place in self.idle.pop(client, []):
            self.end(place.connection)

    def stop(self, claim: Claim) -> None:
        """The claim's session is over."""
        place = self.places.pop(claim.id, None)
        if place is not None:
            self.end(place.connection)


class Real(World):
    """The server, and somebody who looks at it as its administrator."""

    def __init__(self, server: Postgres | MariaDB, protocol: str) -> None:
        self.server = server
        url = f"{emptied(server)}?session={SILENCE}"
        self.direct = Direct(store_of(parsed(url), system_env.now))
        self.dialect = self.direct.dialect
        self.connections: list[Any] = []
        self.witness, _ = self.connect()
        super().__init__(SessionLocks(self.dialect), protocol)

    def connect(self) -> tuple[Any, int]:
        """A connection of the library's."""
        connection = self.direct.connect()
        self.connections.append(connection)
        return connection, connection.backend

    def run(self, connection: Any, script: Script) -> list[Result]:
        """As the library does."""
        return self.direct.execute(connection, script)

    def sit(self, place: Place) -> None:
        """MySQL's waits for rows have a limit of their session."""
        super().sit(place)
        if self.dialect.interrupts:
            self.run(place.connection, _raw(f"SET SESSION innodb_lock_wait_timeout = {LONG:.0f}"))

    def lives(self, connection: Any) -> bool:
        """As the server has it."""
        text = THERE[self.dialect.name].format(connection.backend)
        return bool(self.run(self.witness, _raw(text))[0].rows[0][0])

    def blocked(self, connection: Any) -> bool:
        """Whether it waits for a lock, as the administrator sees it."""
        return bool(self.server.query(BLOCKED[self.dialect.name].format(connection.backend))[0][0])

    def end(self, connection: Any) -> None:
        """And wait until the server has seen it, which MySQL may take its time for."""
        if isinstance(self.server, Postgres):
            connection.cut()
        else:
            self.server.do(f"KILL {connection.backend}")
        eventually(lambda: not self.lives(connection))


class Modelled(World):
    """The model; its waits end when they are told to."""

    def __init__(self, protocol: str) -> None:
        self.clock = count(1)
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.server = Server(self.clock.__next__, lambda *timer: self.timers.append(timer))
        super().__init__(SessionLocks(ByName(*dialect_of("postgres"))), protocol)

    def connect(self) -> tuple[Any, int]:
        """A session."""
        session = self.server.begin(lambda: None)
        return session, session.number

    def run(self, connection: Any, script: Script) -> list[Result]:
        """All but a wait is answered at once."""
        got: list[Any] = []
        self.server.execute(connection, script, got.append)
        if not got:
            raise OutcomeUnknown("the session is over, or waits")
        return outcome(got[0])

    def lives(self, connection: Any) -> bool:
        """What the server knows."""
        return bool(connection.alive)

    def end(self, connection: Any) -> None:
        """At once."""
        self.server.end(connection)


def _raw(text: str) -> Script:
    return (("raw", {"text": text}),)


def outcome(got: Any) -> list[Result]:
    """The results, or the error raised."""
    if isinstance(got, SqlError):
        raise got
    results: list[Result] = got
    return results
