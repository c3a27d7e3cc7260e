"""Connections of threads that nothing uses any more are closed, but for a few."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from verification.models.redis_runner import Runner

import leaselock
from leaselock._backends.redis import pool, subscriptions
from leaselock._backends.redis.messages import Address
from leaselock._core.contract.effects import FOREVER

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.redis.messages import Connection

MANY = 20
SERVER = Address("nowhere", 6379)


class Burst:
    """A store that had many requests at the same time."""

    def __init__(self, *, shared: bool = False) -> None:
        self.runner = Runner("redis://nowhere", lambda address, message: [], shared=shared)
        self.pool = self.runner.store.pool
        self.put([self.get() for _ in range(MANY)])

    def get(self) -> Connection:
        found: Connection = self.runner.run(self.pool.get(SERVER, self.runner.time + 1.0))[0]
        found.last_used = self.runner.time
        return found

    def put(self, connections: list[Connection]) -> None:
        for connection in connections:
            self.pool.put(connection)

    def wake(self) -> None:
        """Let the background process look."""
        (steps,) = self.runner.stopped
        steps.send(False)


def test_the_next_request_closes_what_is_unused() -> None:
    burst = Burst()
    assert len(burst.pool.connections) == MANY
    burst.runner.time = pool.UNUSED_FOR / 2
    used = burst.get()
    burst.put([used])
    assert len(burst.pool.connections) == MANY
    burst.runner.time = pool.UNUSED_FOR + 1.0
    burst.put([burst.get()])
    assert len(burst.pool.connections) == pool.KEPT_UNUSED
    assert used in burst.pool.connections
    assert burst.get() is used


def test_without_a_request_they_are_closed_as_well() -> None:
    burst = Burst()
    kept = burst.runner.store.listener.subscriptions
    assert kept.planned == pool.UNUSED_FOR
    for time, left in ((pool.UNUSED_FOR / 2, MANY), (pool.UNUSED_FOR + 1.0, pool.KEPT_UNUSED)):
        burst.runner.time = time
        burst.wake()
        assert len(burst.pool.connections) == left
    assert kept.planned == FOREVER


def test_a_process_that_sleeps_already_learns_of_it() -> None:
    burst = Burst()
    burst.runner.time = pool.UNUSED_FOR + 1.0
    burst.wake()
    connections = [burst.get() for _ in range(MANY)]
    assert burst.runner.store.listener.subscriptions.planned == 2 * pool.UNUSED_FOR + 1.0
    assert burst.runner.store.listener.subscriptions.plan_changed.is_set
    burst.put(connections)


def test_tasks_share_one_connection() -> None:
    burst = Burst(shared=True)
    assert len(burst.pool.connections) == 1
    burst.runner.time = pool.UNUSED_FOR + 1.0
    assert not burst.pool.close_unused()
    assert len(burst.pool.connections) == 1


def test_threads_of_a_client_leave_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real server, which counts them; the client sends nothing meanwhile."""
    for module in (pool, subscriptions):
        monkeypatch.setattr(module, "UNUSED_FOR", 0.3)
    with Redis() as server, leaselock.Client(server.url) as client:

        def clients() -> int:
            return int(server.info("clients")["connected_clients"])

        before, barrier = clients(), threading.Barrier(MANY)

        def use(number: int) -> None:
            with client.lock(f"{number}"):
                barrier.wait()

        with ThreadPoolExecutor(MANY) as threads:
            list(threads.map(use, range(MANY)))
        eventually(lambda: clients() - before <= pool.KEPT_UNUSED)
        with client.lock("again"):
            assert clients() > before
