"""A session whose connection fails: the holder learns of the loss before the lock is free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from verification.models.sides import claim_of
from verification.simulation.simulator import Faults, Machine, Simulator
from verification.simulation.sql_connection import SESSION_TIMEOUT, Network, simulated_store
from verification.simulation.sql_server import Server

from leaselock._backends.sql.keys import HOLDER, number
from leaselock._backends.sql.session_connection import SessionConnection
from leaselock._backends.sql.session_locks import SessionLocks
from leaselock._backends.sql.session_pool import MOST_DROPPED, SessionPool
from leaselock._backends.sql.session_state import TRANSITIONS, Session, State
from leaselock._backends.sql.session_views import BREAK_POLL, break_lock
from leaselock._backends.sql.statements import Result, dialect_of
from leaselock._core.contract.backend import Acquire, BreakLock, Busy, Grant, Released
from leaselock._core.contract.effects import Call, Sleep
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from leaselock._core.contract.backend import Claim

CLAIM = claim_of("0" * 32, "a", 1, 30.0)


class Line:
    """A pool and the only connection in it, on which every request fails."""

    dialect: Any
    target: Any
    usable = True

    def __init__(self) -> None:
        self.dialect = self.target = self
        self.name = "postgres"
        self.session = 30.0
        self.closed = False

    def text(self, parts: object, values: object) -> tuple[str, None]:
        return "ping", None

    def discard(self, connection: object) -> None:
        self.closed = True

    async def converse(self, *_: object) -> None:
        raise OutcomeUnknown("no answer")

    def remove(self, found: object) -> None:
        """Be the watcher of the connection, too."""


def held(line: Any) -> SessionPool:
    pool = SessionPool(line, lambda: line, lambda: 0.0)
    found = pool.by_claim[CLAIM.id] = SessionConnection(line, Session("key", 1))
    found.session.serve(CLAIM, "row")
    found.session.hold(7)
    return pool


def finished(operation: Awaitable[Any]) -> Any:
    """Run an operation; the server answers nothing."""
    steps = operation.__await__()
    error: BaseException | None = None
    while True:
        try:
            effect = next(steps) if error is None else steps.throw(error)
        except StopIteration as done:
            return done.value
        assert isinstance(effect, Call)
        error = OutcomeUnknown("no answer")


@pytest.mark.parametrize("state", State)
def test_a_session_changes_its_state_by_events_only(state: State) -> None:
    for event in ("serve", "queue", "lock", "hold", "clear", "lose", "end"):
        session = Session("key", 1)
        session.state = state
        if (state, event) in TRANSITIONS:
            session.transition(event)
            assert session.state is TRANSITIONS[state, event]
        else:
            with pytest.raises(AssertionError, match=f"no '{event}' of a session that is {state}"):
                session.transition(event)


def test_an_unanswered_renewal_does_not_free_the_lock() -> None:
    line = Line()
    pool = held(line)
    assert finished(pool.renew([CLAIM], 1.0)) == (False,)
    assert not line.closed
    # Nor does it become valid again.
    assert finished(pool.renew([CLAIM], 1.0)) == (False,)
    assert not line.closed
    assert finished(pool.release(CLAIM, 1.0)) == Released("absent", ())
    assert line.closed


def test_a_downgrade_that_fails_does_not_free_the_lock() -> None:
    line = Line()
    pool = held(line)
    with pytest.raises(OutcomeUnknown):
        finished(pool.convert(CLAIM, "shared", 1.0))
    assert not line.closed
    assert finished(pool.renew([CLAIM], 1.0)) == (False,)


def test_a_wait_cancelled_while_its_token_is_counted_is_not_granted() -> None:
    """The token is counted on another connection, when that of the claim is already closed."""

    class Counting(Line):
        def cut(self) -> None:
            pass

        async def converse(self, *_: object) -> Any:
            session = pool.by_claim[CLAIM.id].session
            pool.wake([CLAIM.id])
            session.hold(7)
            return Grant(7, ())

    line: Any = Counting()
    pool = SessionPool(line, lambda: line, lambda: 0.0)
    waiting = pool.by_claim[CLAIM.id] = SessionConnection(line, Session("key", 1))
    waiting.session.serve(CLAIM, "row")
    with pytest.raises(OutcomeUnknown, match="has ended meanwhile"):
        finished(pool.acquire("row", Acquire(CLAIM, True), 1.0))


# Virtual seconds.
LEASE, MILLISECONDS = 1.0, 0.01


class Simulated:
    """A client and a server in virtual time."""

    def __init__(self) -> None:
        self.simulator = Simulator(1, {}, Faults())
        self.server = Server(lambda: int(self.simulator.time * 1e6), self.simulator.after)
        self.machine = Machine(self.simulator, "m")
        self.network = Network(self.machine, self.server)
        self.store = simulated_store(self.network)
        self.backend = self.made("advisory")
        self.lost: dict[str, float] = {}
        self.backend.lose = self._lose

    def made(self, protocol: str) -> Any:
        """A backend; the type that the store names is not of sessions only."""
        return self.store.backend(protocol)

    def _lose(self, claim_id: str, reason: str) -> None:
        self.lost[claim_id] = self.simulator.time

    def run(self, operation: Coroutine[Any, Any, Any], seconds: float = 0.1) -> Any:
        """Run an operation of the client to its end."""
        run = self.machine.start(operation)
        self.simulator.play(self.simulator.time + seconds)
        assert run.ended
        return run.result

    def acquire(self, claim: Claim) -> object:
        until = self.simulator.time + 1.0
        return self.run(self.backend.acquire(claim, wait=False, until=until))

    def release(self, claim: Claim) -> object:
        until = self.simulator.time + 1.0
        return self.run(self.backend.release(claim, tombstone=False, until=until))


def test_a_silent_session_does_not_hide_the_end_of_another() -> None:
    """The lease of one hold ends while its session does not answer; then the other session ends."""
    fixture = Simulated()
    silent = claim_of("m.1", "silent", 1, LEASE)
    other = claim_of("m.1", "other", 2, 20.0)
    for claim in (silent, other):
        assert isinstance(fixture.acquire(claim), Grant)
    sessions = fixture.store.sessions.by_claim
    connection: Any = sessions[silent.id].connection
    connection.lose()
    fixture.simulator.play(1.5 * LEASE)
    fixture.server.end(fixture.server.sessions[sessions[other.id].connection.backend])
    fixture.simulator.play(1.5 * LEASE + MILLISECONDS)
    assert fixture.lost == {other.id: pytest.approx(1.5 * LEASE, abs=MILLISECONDS)}


def idle_sessions(fixture: Simulated) -> int:
    """Of a client whose locks were granted, and of one that found them taken."""
    held = [claim_of("m.1", f"lock {n}", n, 20.0) for n in range(3)]
    refused = [claim_of("m.2", f"lock {n}", n, 20.0) for n in range(3)]
    for claim in held:
        assert isinstance(fixture.acquire(claim), Grant)
    backend, fixture.backend = fixture.backend, fixture.made("advisory")
    for claim in refused:
        assert isinstance(fixture.acquire(claim), Busy)
    fixture.backend = backend
    for claim in held:
        assert fixture.release(claim)
    return len(fixture.server.sessions)


def test_idle_sessions_are_closed_after_a_while() -> None:
    fixture = Simulated()
    assert idle_sessions(fixture) == 4
    fixture.simulator.play(fixture.simulator.time + SESSION_TIMEOUT / 2 + 0.1)
    assert fixture.server.sessions == {}
    assert not any(fixture.store.sessions.idle.values())
    assert fixture.store.pool.connections == set(fixture.store.pool.idle)


def test_idle_sessions_that_the_server_ends_are_closed() -> None:
    fixture = Simulated()
    assert idle_sessions(fixture) == 4
    for session in list(fixture.server.sessions.values()):
        fixture.server.end(session)
    fixture.simulator.play(fixture.simulator.time + MILLISECONDS)
    assert not any(fixture.store.sessions.idle.values())
    assert all(connection.closed for connection in fixture.network.connections)
    assert fixture.lost == {}


def test_a_broken_session_is_looked_for_with_pauses() -> None:
    """The server takes some time to end it."""
    record = ("x", "a:1", "a", 7, 3, "{}", 0, "exclusive")
    looks = iter([[record], [record], [record], [record], []])
    ended = []

    async def shared(script: Any) -> list[Result]:
        title, values = script[0]
        if title == "end session":
            ended.append(values)
            return [Result([], 0)]
        return [Result(next(looks) if title == "sessions" else [], 0)]

    locks = SessionLocks(dialect_of("postgres"), lambda: 5.0)
    steps = break_lock(locks, "advisory", BreakLock("x", None), shared).__await__()
    # Three looks find it, and the fourth does not.
    pauses = [next(steps) for _ in range(3)]
    assert [(type(each), each.until) for each in pauses] == [(Sleep, 5.0 + BREAK_POLL)] * 3
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value.done
    assert ended == [{"backend": 3, "liveness_key": number(HOLDER, "a:1")}]


def test_claims_that_the_server_never_knew_leave_nothing() -> None:
    """Behind a proxy that pools transactions, each acquire is refused, and none is released."""

    class Refusing(Line):
        async def converse(self, *_: object) -> None:
            raise NotApplied("a proxy is between")

        def fresh(self) -> bool:
            return True

    line: Any = Refusing()
    pool = SessionPool(line, lambda: line, lambda: 0.0)
    for serial in range(10):
        claim = claim_of("0" * 32, "a", serial, 30.0)
        connection = SessionConnection(line, Session("key", serial))
        pool.idle[claim.client] = [connection]
        with pytest.raises(NotApplied):
            finished(pool.acquire("row", Acquire(claim, True), 1.0))
    assert pool.dropped == {}


def test_claims_whose_release_was_given_up_are_forgotten() -> None:
    line: Any = Line()
    pool = SessionPool(line, lambda: line, lambda: 0.0)
    for serial in range(MOST_DROPPED + 10):
        claim = claim_of("0" * 32, "a", serial, 30.0)
        connection = pool.by_claim[claim.id] = SessionConnection(line, Session("key", serial))
        pool._drop(claim, connection)
    assert len(pool.dropped) == MOST_DROPPED
