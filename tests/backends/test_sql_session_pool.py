"""A session whose connection fails: the holder learns of the loss before the lock is free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.models.worlds import claim_of
from tests.simulation.sql_connection import Network, simulated_store
from tests.simulation.sql_server import Server
from tests.simulation.world import Faults, Machine, World

from leaselock.backends.sql.session_connection import SessionConnection
from leaselock.backends.sql.session_locks import Session
from leaselock.backends.sql.session_pool import SessionPool
from leaselock.core.backend import Grant, Released
from leaselock.core.effects import Call
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable

CLAIM = claim_of("0" * 32, "a", 1, 30.0)


class Line:
    """A pool and the only connection in it, on which every request fails."""

    dialect: Any
    usable = True

    def __init__(self) -> None:
        self.dialect = self
        self.name = "postgres"
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
    found = pool.sessions[CLAIM.id] = SessionConnection(line, Session("key", 1))
    found.session.claim, found.session.token = CLAIM, 7
    return pool


def finished(process: Awaitable[Any]) -> Any:
    """Run a process; the server answers nothing."""
    steps = process.__await__()
    error: BaseException | None = None
    while True:
        try:
            effect = next(steps) if error is None else steps.throw(error)
        except StopIteration as done:
            return done.value
        assert isinstance(effect, Call)
        error = OutcomeUnknown("no answer")


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


# Virtual seconds.
LEASE, MILLISECONDS = 1.0, 0.01


def test_a_silent_session_does_not_hide_the_end_of_another() -> None:
    """The lease of one hold ends while its session does not answer; then the other session ends."""
    world = World(1, {}, Faults())
    server = Server(lambda: int(world.time * 1e6), world.after)
    machine = Machine(world, "m")
    network = Network(machine, server)
    store = simulated_store(network)
    backend = store.backend("advisory")
    lost: dict[str, float] = {}
    backend.report_to(lambda claim_id, reason: lost.setdefault(claim_id, world.time))
    silent = claim_of("m.1", "silent", 1, LEASE)
    other = claim_of("m.1", "other", 2, 20.0)

    async def hold() -> None:
        for claim in (silent, other):
            assert isinstance(await backend.acquire(claim, wait=False, until=1.0), Grant)

    machine.start(hold())
    world.play(0.5)
    sessions = store.sessions.sessions
    network.connections[0].lose()
    assert sessions[silent.id].connection is network.connections[0]
    world.play(1.5 * LEASE)
    ended = server.sessions[sessions[other.id].connection.backend]
    server.end(ended)
    world.play(1.5 * LEASE + MILLISECONDS)
    assert lost == {other.id: pytest.approx(1.5 * LEASE, abs=MILLISECONDS)}
