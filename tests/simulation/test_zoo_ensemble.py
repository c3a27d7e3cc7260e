"""The model of several servers: who sees what, and when; what an election changes."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import pytest
from tests.simulation.zoo_ensemble import MOST_LAG, Ensemble, Troubles

from leaselock.backends.zookeeper.requests import (
    Agree,
    Children,
    Create,
    Ensure,
    Flight,
    Landed,
    Operation,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION = 4.0
# So late on the average that the most that may be always is.
LATE = 1000 * MOST_LAG


class Scene:
    """An ensemble of three, its clients, and a time that passes when it is told to."""

    def __init__(self) -> None:
        self.time = 0.0
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.entries = count()
        self.frozen: set[str] = set()
        self.flights: dict[str, int] = {}
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
        """Put it on the agenda."""
        heappush(self.agenda, (self.time + seconds, next(self.entries), action))

    def pass_time(self, seconds: float) -> None:
        """Let happen what happens until then."""
        until = self.time + seconds
        while self.agenda and self.agenda[0][0] <= until:
            self.time, _, action = heappop(self.agenda)
            action()
        self.time = until

    def ask(self, name: str, *operations: Operation) -> list[object]:
        """Where the answers will be, once there are any."""
        self.flights[name] = self.flights.get(name, 0) + 1
        landed: list[object] = []
        self.ensemble.ask(name, Flight(operations, self.flights[name]), landed.append)
        return landed

    def asked(self, name: str, *operations: Operation) -> object:
        """The last answer, which is there within a second."""
        landed = self.ask(name, *operations)
        self.pass_time(1.0)
        (answer,) = landed
        assert isinstance(answer, Landed)
        return answer.answers[-1]

    def connect(self, name: str, index: int) -> None:
        """Have a client on that server."""
        others = [s for i, s in enumerate(self.ensemble.servers) if i != index]
        for server in others:
            server.up = False
        self.ensemble.cut(name)
        self.asked(name, Children("/"))
        for server in others:
            server.up = True


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.connect("writer", 0)
    scene.connect("reader", 1)
    scene.asked("writer", Ensure("/a"))
    return scene


@pytest.fixture
def late(scene: Scene) -> Scene:
    scene.ensemble.troubles = Troubles(lag=LATE)
    return scene


def names(scene: Scene, client: str, *before: Operation) -> object:
    return scene.asked(client, *before, Children("/a"))


def test_a_follower_has_late_what_was_agreed_on(late: Scene) -> None:
    late.asked("writer", Create("/a/x", b""))
    assert names(late, "writer") == ("x0000000000",)
    assert names(late, "reader") == ()
    late.pass_time(MOST_LAG)
    assert names(late, "reader") == ("x0000000000",)


@pytest.mark.parametrize("operation", [Create("/a/y", b""), Agree("/a")])
def test_who_writes_or_syncs_is_answered_when_its_server_has_all_before(
    late: Scene, operation: Operation
) -> None:
    late.asked("writer", Create("/a/x", b""))
    answers = late.ask("reader", operation, Children("/a"))
    late.pass_time(0.0)
    assert not answers
    late.pass_time(MOST_LAG)
    (landed,) = answers
    assert isinstance(landed, Landed)
    assert "x0000000000" in landed.answers[-1]  # type: ignore[operator]


def test_a_client_is_not_taken_in_by_a_server_that_is_behind_it(late: Scene) -> None:
    late.asked("writer", Create("/a/x", b""))
    late.leader.up = False
    late.ensemble.cut("writer")
    late.pass_time(1.0)
    assert late.ensemble.links["writer"].server is None
    late.pass_time(MOST_LAG)
    assert late.ensemble.links["writer"].server is not None


def test_a_server_that_is_parted_reads_and_agrees_on_nothing(scene: Scene) -> None:
    scene.near.parted = True
    answers = scene.ask("reader", Create("/a/x", b""))
    scene.pass_time(1.0)
    assert not answers
    assert names(scene, "writer") == ()
    scene.ensemble.rejoin(scene.near, forsaking=False)
    assert names(scene, "writer") == ("x0000000000",)


def test_a_server_that_is_parted_lets_sessions_end_and_does_not_know(scene: Scene) -> None:
    scene.asked("reader", Create("/a/x", b""))
    scene.pass_time(MOST_LAG)
    scene.near.parted = True
    scene.pass_time(SESSION)
    assert names(scene, "reader") == ("x0000000000",)
    assert names(scene, "writer") == ()


def test_another_leader_gives_each_session_its_whole_time(scene: Scene) -> None:
    scene.asked("reader", Create("/a/x", b""))
    scene.frozen.add("reader")
    scene.pass_time(SESSION - 1.5)
    scene.ensemble.elect(2.0)
    scene.pass_time(2.0 + SESSION - 0.5)
    assert "x0000000000" in scene.ensemble.tree.below["/a"]
    scene.pass_time(1.0)
    assert not scene.ensemble.tree.below["/a"]


def test_in_an_election_nobody_is_connected_and_tokens_rise_beyond_it(scene: Scene) -> None:
    first = scene.asked("writer", Create("/a/x", b""))
    scene.ensemble.elect(2.0)
    scene.pass_time(1.9)
    assert scene.ensemble.links["writer"].server is None
    scene.pass_time(1.1)
    second = scene.asked("writer", Create("/a/x", b""))
    assert second.token >> 32 > first.token >> 32  # type: ignore[attr-defined]


def test_servers_agree_in_the_end(scene: Scene) -> None:
    for number in range(5):
        scene.asked("writer", Create("/a/x", b""))
        scene.ensemble.stop(scene.ensemble.servers[number % 3], 0.5)
        scene.pass_time(2.0)
        scene.ensemble.start(scene.ensemble.servers[number % 3])
    scene.pass_time(MOST_LAG)
    for server in scene.ensemble.servers:
        assert server.tree.nodes == scene.ensemble.tree.nodes
