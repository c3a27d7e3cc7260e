"""Sessions of a real database and of its model, on which the library's protocol text runs.

Each claim that holds or waits has its own session. One more session executes other scripts.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from testkit.servers.databases import emptied
from testkit.servers.postgres import Postgres
from testkit.servers.process import eventually
from tests.backends.sql.sessions import Direct, finished
from verification.simulation.sql_connection import ByName
from verification.simulation.sql_server import Server

from leaselock._backends.sql import session_views
from leaselock._backends.sql.session_locks import SessionLocks
from leaselock._backends.sql.session_state import Session
from leaselock._backends.sql.statements import SqlError, dialect_of
from leaselock._backends.sql.store import store_of
from leaselock._backends.sql.url import parsed
from leaselock._core.contract.backend import Acquire, BreakLock, Inspect, Release, Released, Renew
from leaselock._drivers import system_env
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from testkit.servers.mariadb import MariaDB

    from leaselock._backends.sql.statements import Result, Script
    from leaselock._core.contract.backend import Claim

SILENCE = 600.0
# The time limits of waits in seconds: one that does not expire in a test, and one that does.
LONG, BRIEF = 600.0, 0.01
THERE = {
    "postgres": "SELECT count(*) FROM pg_stat_activity WHERE pid = {}",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE id = {}",
}


class SessionConnection:
    """A connection on one side, and the state of its session."""

    def __init__(self, connection: Any, session: Session) -> None:
        self.connection = connection
        self.session = session


class SideExecutor:
    """Executes scripts on one connection of a side."""

    def __init__(self, side: Side, connection: Any) -> None:
        self.side = side
        self.connection = connection

    async def execute(self, script: Script) -> list[Result]:
        """Execute a script."""
        return self.side.run(self.connection, script)


class Side:
    """One side: a session for each claim, and one more."""

    def __init__(self, locks: SessionLocks, protocol: str) -> None:
        self.locks = locks
        self.protocol = protocol
        self.sessions: dict[str, SessionConnection] = {}
        self.idle: dict[str, list[SessionConnection]] = {}
        self.serials = count()
        self.shared, _ = self.connect()

    def connect(self) -> tuple[Any, int]:
        """Open another session; return it, and its number in the server."""
        raise NotImplementedError

    def run(self, connection: Any, script: Script) -> list[Result]:
        """Execute a script in a session."""
        raise NotImplementedError

    def lives(self, connection: Any) -> bool:
        """Return whether the session is still open in the server."""
        raise NotImplementedError

    def end(self, connection: Any) -> None:
        """Terminate the session."""
        raise NotImplementedError

    def own(self, place: SessionConnection) -> Any:
        """Return an executor for the connection of a session."""
        return SideExecutor(self, place.connection)

    def shared_executor(self, script: Script) -> Any:
        """Execute a script in the additional session."""
        return SideExecutor(self, self.shared).execute(script)

    def answer(self, request: Any) -> object:
        """Execute a request that does not wait."""
        if isinstance(request, Acquire):
            return self._acquire(request)
        if isinstance(request, Release):
            return self._release(request.claim)
        if isinstance(request, Renew):
            return tuple(self._lives(claim) for claim in request.claims)
        if isinstance(request, Inspect):
            return finished(
                session_views.inspect(self.locks, self.protocol, request, self.shared_executor)
            )
        assert isinstance(request, BreakLock)
        return finished(
            session_views.break_lock(self.locks, self.protocol, request, self.shared_executor)
        )

    def place(self, claim: Claim) -> SessionConnection | None:
        """Return the session of a claim, if it is open."""
        place = self.sessions.get(claim.id)
        return place if place is not None and self.lives(place.connection) else None

    def _acquire(self, request: Acquire) -> object:
        claim = request.claim
        place = self.place(claim)
        if place is None:
            idle = self.idle.get(claim.client)
            place = idle.pop() if idle else self.open_session(claim)
            place.session.serve(claim, self.protocol)
            self.sessions[claim.id] = place
        reply: object = finished(
            self.locks.acquire(place.session, request, self.own(place), self.shared_executor)
        )
        if not place.session.has_lease() and not request.wait:
            self.end_claim(claim)
        return reply

    def open_session(self, claim: Claim) -> SessionConnection:
        """Open a session for a claim."""
        connection, number = self.connect()
        place = SessionConnection(
            connection, Session(f"{claim.client}:{next(self.serials)}:{number}", number)
        )
        self.set_up(place)
        return place

    def set_up(self, place: SessionConnection) -> None:
        """Set the parameters of the session."""
        finished(self.locks.prepare(SILENCE, self.own(place)))

    def _release(self, claim: Claim) -> Released:
        place = self.place(claim)
        if place is None:
            return Released("absent", ())
        held = place.session.has_lease()
        finished(self.locks.release(place.session, self.own(place)))
        self.end_claim(claim)
        return Released("held" if held else "waiting", ())

    def _lives(self, claim: Claim) -> bool:
        place = self.place(claim)
        if place is not None:
            finished(self.locks.ping(self.own(place)))
        return place is not None

    def end_claim(self, claim: Claim) -> None:
        """End the claim, and keep its session for the next one of its client."""
        place = self.sessions.pop(claim.id)
        place.session.clear()
        self.idle.setdefault(claim.client, []).append(place)

    def die(self, client: str) -> None:
        """Terminate all sessions of a client."""
        claims = [place.session.claim for place in self.sessions.values()]
        for claim in [claim for claim in claims if claim and claim.client == client]:
            self.stop(claim)
        for place in self.idle.pop(client, []):
            self.end(place.connection)

    def stop(self, claim: Claim) -> None:
        """Terminate the session of the claim."""
        place = self.sessions.pop(claim.id, None)
        if place is not None:
            self.end(place.connection)


class Real(Side):
    """The server, and a connection to it as its administrator."""

    def __init__(self, server: Postgres | MariaDB, protocol: str) -> None:
        self.server = server
        url = f"{emptied(server)}?session={SILENCE}"
        self.direct = Direct(store_of(parsed(url), system_env.now))
        self.dialect = self.direct.dialect
        self.connections: list[Any] = []
        self.witness, _ = self.connect()
        super().__init__(SessionLocks(self.dialect, system_env.now), protocol)

    def connect(self) -> tuple[Any, int]:
        """Open a connection of the library."""
        connection = self.direct.connect()
        self.connections.append(connection)
        return connection, connection.backend

    def run(self, connection: Any, script: Script) -> list[Result]:
        """Execute a script as the library does."""
        return self.direct.execute(connection, script)

    def set_up(self, place: SessionConnection) -> None:
        """In MySQL the time limit of a wait for a row is a parameter of the session."""
        super().set_up(place)
        if self.dialect.interrupts:
            self.run(place.connection, _raw(f"SET SESSION innodb_lock_wait_timeout = {LONG:.0f}"))

    def lives(self, connection: Any) -> bool:
        """Return whether the server lists the session."""
        text = THERE[self.dialect.name].format(connection.backend)
        return bool(self.run(self.witness, _raw(text))[0].rows[0][0])

    def blocked(self, connection: Any) -> bool:
        """Return whether the session waits for a lock, as the administrator sees it."""
        return connection.backend in self.server.blocked()

    def end(self, connection: Any) -> None:
        """Terminate the session, and wait until the server has noticed."""
        if isinstance(self.server, Postgres):
            connection.cut()
        else:
            self.server.do(f"KILL {connection.backend}")
        eventually(lambda: not self.lives(connection))


class Modelled(Side):
    """The model, whose waits end on demand."""

    def __init__(self, protocol: str) -> None:
        self.clock = count(1)
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.server = Server(self.clock.__next__, lambda *timer: self.timers.append(timer))
        super().__init__(SessionLocks(ByName(*dialect_of("postgres")), system_env.now), protocol)

    def connect(self) -> tuple[Any, int]:
        """Open a session of the model."""
        session = self.server.begin(lambda: None)
        return session, session.number

    def run(self, connection: Any, script: Script) -> list[Result]:
        """Execute a script, which must not wait."""
        got: list[Any] = []
        self.server.execute(connection, script, got.append)
        if not got:
            raise OutcomeUnknown("the session is over, or waits")
        return outcome(got[0])

    def lives(self, connection: Any) -> bool:
        """Return whether the session is open."""
        return bool(connection.alive)

    def end(self, connection: Any) -> None:
        """Terminate the session at once."""
        self.server.end(connection)


def _raw(text: str) -> Script:
    return (("raw", {"text": text}),)


def outcome(got: Any) -> list[Result]:
    """Return the results, or raise the error."""
    if isinstance(got, SqlError):
        raise got
    results: list[Result] = got
    return results
