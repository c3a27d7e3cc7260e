"""The model of several servers: when each server sees a write, and what an election changes."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import pytest
from verification.simulation.zoo_ensemble import MOST_LAG, Ensemble, Troubles

from leaselock._backends.zookeeper.requests import (
    Batch,
    BatchResult,
    CreateSequential,
    EnsurePath,
    GetChildren,
    Operation,
    QuorumBarrier,
    names_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.first_tier

SESSION = 4.0
# A mean lag of followers with which each has the longest lag.
LATE = 1000 * MOST_LAG


class Fixture:
    """An ensemble of three servers, its clients, and a clock that the test moves."""

    def __init__(self) -> None:
        self.time = 0.0
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.entries = count()
        self.frozen: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.ensemble = Ensemble(
            lambda: self.time,
            self.after,
            lambda name: name not in self.frozen,
            SESSION,
            Random(1),
            3,
        )
        self.leader, self.near, self.far = self.ensemble.servers

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action."""
        heappush(self.agenda, (self.time + seconds, next(self.entries), action))

    def pass_time(self, seconds: float) -> None:
        """Run the actions that are due until then."""
        until = self.time + seconds
        while self.agenda and self.agenda[0][0] <= until:
            self.time, _, action = heappop(self.agenda)
            action()
        self.time = until

    def ask(self, name: str, *operations: Operation) -> list[object]:
        """Send a batch; return the list that receives its result."""
        number = self.numbers[name] = self.numbers.get(name, 0) + 1
        results: list[object] = []
        self.ensemble.ask(name, number, Batch(operations, 0), results.append)
        return results

    def asked(self, name: str, *operations: Operation) -> object:
        """Send a batch; return the last reply, which arrives within a second."""
        results = self.ask(name, *operations)
        self.pass_time(1.0)
        (result,) = results
        assert isinstance(result, BatchResult)
        return result.replies[-1]

    def connect(self, name: str, index: int) -> None:
        """Connect a client to that server."""
        others = [s for i, s in enumerate(self.ensemble.servers) if i != index]
        for server in others:
            server.up = False
        self.ensemble.cut(name)
        self.asked(name, GetChildren("/"))
        for server in others:
            server.up = True


@pytest.fixture
def fixture() -> Fixture:
    fixture = Fixture()
    fixture.connect("writer", 0)
    fixture.connect("reader", 1)
    fixture.asked("writer", EnsurePath("/a"))
    return fixture


@pytest.fixture
def late(fixture: Fixture) -> Fixture:
    fixture.ensemble.troubles = Troubles(lag=LATE)
    return fixture


def names(fixture: Fixture, client: str, *before: Operation) -> object:
    return names_of(fixture.asked(client, *before, GetChildren("/a")))


def test_a_follower_lags_behind(late: Fixture) -> None:
    late.asked("writer", CreateSequential("/a/x", b""))
    assert names(late, "writer") == ("x0000000000",)
    assert names(late, "reader") == ()
    late.pass_time(MOST_LAG)
    assert names(late, "reader") == ("x0000000000",)


@pytest.mark.parametrize("operation", [CreateSequential("/a/y", b""), QuorumBarrier("/a")])
def test_a_write_is_answered_after_all_earlier_writes_are_visible(
    late: Fixture, operation: Operation
) -> None:
    late.asked("writer", CreateSequential("/a/x", b""))
    results = late.ask("reader", operation, GetChildren("/a"))
    late.pass_time(0.0)
    assert not results
    late.pass_time(MOST_LAG)
    (result,) = results
    assert isinstance(result, BatchResult)
    assert "x0000000000" in names_of(result.replies[-1])


def test_a_server_that_is_behind_a_client_does_not_accept_it(late: Fixture) -> None:
    late.asked("writer", CreateSequential("/a/x", b""))
    late.leader.up = False
    late.ensemble.cut("writer")
    late.pass_time(1.0)
    assert late.ensemble.links["writer"].server is None
    late.pass_time(MOST_LAG)
    assert late.ensemble.links["writer"].server is not None


def test_a_partitioned_server_results_reads_but_no_writes(fixture: Fixture) -> None:
    fixture.near.partitioned = True
    results = fixture.ask("reader", CreateSequential("/a/x", b""))
    fixture.pass_time(1.0)
    assert not results
    assert names(fixture, "writer") == ()
    fixture.ensemble.rejoin(fixture.near, dropping=False)
    assert names(fixture, "writer") == ("x0000000000",)


def test_a_partitioned_server_does_not_learn_that_a_session_ended(fixture: Fixture) -> None:
    fixture.asked("reader", CreateSequential("/a/x", b""))
    fixture.pass_time(MOST_LAG)
    fixture.near.partitioned = True
    fixture.pass_time(SESSION)
    assert names(fixture, "reader") == ("x0000000000",)
    assert names(fixture, "writer") == ()


def test_an_election_restarts_the_timeout_of_each_session(fixture: Fixture) -> None:
    fixture.asked("reader", CreateSequential("/a/x", b""))
    fixture.frozen.add("reader")
    fixture.pass_time(SESSION - 1.5)
    fixture.ensemble.elect(2.0)
    fixture.pass_time(2.0 + SESSION - 0.5)
    assert "x0000000000" in fixture.ensemble.tree.below["/a"]
    fixture.pass_time(1.0)
    assert not fixture.ensemble.tree.below["/a"]


def test_an_election_breaks_all_connections_and_raises_the_tokens(fixture: Fixture) -> None:
    first = fixture.asked("writer", CreateSequential("/a/x", b""))
    fixture.ensemble.elect(2.0)
    fixture.pass_time(1.9)
    assert fixture.ensemble.links["writer"].server is None
    fixture.pass_time(1.1)
    second = fixture.asked("writer", CreateSequential("/a/x", b""))
    assert second.token >> 32 > first.token >> 32  # type: ignore[attr-defined]


def test_all_servers_end_with_the_same_nodes(fixture: Fixture) -> None:
    for number in range(5):
        fixture.asked("writer", CreateSequential("/a/x", b""))
        fixture.ensemble.stop(fixture.ensemble.servers[number % 3], 0.5)
        fixture.pass_time(2.0)
        fixture.ensemble.start(fixture.ensemble.servers[number % 3])
    fixture.pass_time(MOST_LAG)
    for server in fixture.ensemble.servers:
        assert server.tree.nodes == fixture.ensemble.tree.nodes
