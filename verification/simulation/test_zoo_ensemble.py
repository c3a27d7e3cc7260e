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


class Scene:
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
def scene() -> Scene:
    scene = Scene()
    scene.connect("writer", 0)
    scene.connect("reader", 1)
    scene.asked("writer", EnsurePath("/a"))
    return scene


@pytest.fixture
def late(scene: Scene) -> Scene:
    scene.ensemble.troubles = Troubles(lag=LATE)
    return scene


def names(scene: Scene, client: str, *before: Operation) -> object:
    return names_of(scene.asked(client, *before, GetChildren("/a")))


def test_a_follower_lags_behind(late: Scene) -> None:
    late.asked("writer", CreateSequential("/a/x", b""))
    assert names(late, "writer") == ("x0000000000",)
    assert names(late, "reader") == ()
    late.pass_time(MOST_LAG)
    assert names(late, "reader") == ("x0000000000",)


@pytest.mark.parametrize("operation", [CreateSequential("/a/y", b""), QuorumBarrier("/a")])
def test_a_write_is_answered_after_all_earlier_writes_are_visible(
    late: Scene, operation: Operation
) -> None:
    late.asked("writer", CreateSequential("/a/x", b""))
    results = late.ask("reader", operation, GetChildren("/a"))
    late.pass_time(0.0)
    assert not results
    late.pass_time(MOST_LAG)
    (result,) = results
    assert isinstance(result, BatchResult)
    assert "x0000000000" in names_of(result.replies[-1])


def test_a_server_that_is_behind_a_client_does_not_accept_it(late: Scene) -> None:
    late.asked("writer", CreateSequential("/a/x", b""))
    late.leader.up = False
    late.ensemble.cut("writer")
    late.pass_time(1.0)
    assert late.ensemble.links["writer"].server is None
    late.pass_time(MOST_LAG)
    assert late.ensemble.links["writer"].server is not None


def test_a_partitioned_server_results_reads_but_no_writes(scene: Scene) -> None:
    scene.near.partitioned = True
    results = scene.ask("reader", CreateSequential("/a/x", b""))
    scene.pass_time(1.0)
    assert not results
    assert names(scene, "writer") == ()
    scene.ensemble.rejoin(scene.near, dropping=False)
    assert names(scene, "writer") == ("x0000000000",)


def test_a_partitioned_server_does_not_learn_that_a_session_ended(scene: Scene) -> None:
    scene.asked("reader", CreateSequential("/a/x", b""))
    scene.pass_time(MOST_LAG)
    scene.near.partitioned = True
    scene.pass_time(SESSION)
    assert names(scene, "reader") == ("x0000000000",)
    assert names(scene, "writer") == ()


def test_an_election_restarts_the_timeout_of_each_session(scene: Scene) -> None:
    scene.asked("reader", CreateSequential("/a/x", b""))
    scene.frozen.add("reader")
    scene.pass_time(SESSION - 1.5)
    scene.ensemble.elect(2.0)
    scene.pass_time(2.0 + SESSION - 0.5)
    assert "x0000000000" in scene.ensemble.tree.below["/a"]
    scene.pass_time(1.0)
    assert not scene.ensemble.tree.below["/a"]


def test_an_election_breaks_all_connections_and_raises_the_tokens(scene: Scene) -> None:
    first = scene.asked("writer", CreateSequential("/a/x", b""))
    scene.ensemble.elect(2.0)
    scene.pass_time(1.9)
    assert scene.ensemble.links["writer"].server is None
    scene.pass_time(1.1)
    second = scene.asked("writer", CreateSequential("/a/x", b""))
    assert second.token >> 32 > first.token >> 32  # type: ignore[attr-defined]


def test_all_servers_end_with_the_same_nodes(scene: Scene) -> None:
    for number in range(5):
        scene.asked("writer", CreateSequential("/a/x", b""))
        scene.ensemble.stop(scene.ensemble.servers[number % 3], 0.5)
        scene.pass_time(2.0)
        scene.ensemble.start(scene.ensemble.servers[number % 3])
    scene.pass_time(MOST_LAG)
    for server in scene.ensemble.servers:
        assert server.tree.nodes == scene.ensemble.tree.nodes
