"""A cluster whose slots move and whose masters die, with holders and waiters, and with Java.

Invariants: a move affects no holder and no waiter; a failover keeps the data of the replica; a
waiter receives its message wherever the slot is.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from verification.interop.java import Java, build

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor

    from testkit.servers.cluster import Cluster, Move
    from testkit.servers.redis import Redis

pytestmark = [pytest.mark.long, pytest.mark.heavy]

COLOURS = ("threads", "asyncio")
LEASE = 60.0
TIMEOUT = 30.0
SECOND = 1_000_000_000
MANY = 10


def take(url: str, name: str) -> tuple[int, int]:
    """Wait for the lock and release it; return the time of the grant, and the token."""
    client = leaselock.Client(url, op_timeout=TIMEOUT)
    with client, client.lock(name, lease=LEASE, timeout=TIMEOUT) as lease:
        return time.monotonic_ns(), lease.token


async def take_async(url: str, name: str) -> tuple[int, int]:
    client = leaselock.AsyncClient(url, op_timeout=TIMEOUT)
    async with client, client.lock(name, lease=LEASE, timeout=TIMEOUT) as lease:
        return time.monotonic_ns(), lease.token


def waiting(
    pool: ThreadPoolExecutor, colour: str, lock: leaselock.Lock, url: str
) -> Future[tuple[int, int]]:
    """Start a waiter, and return when it is in the queue."""
    before = len(lock.waiters())
    if colour == "threads":
        future = pool.submit(take, url, lock.name)
    else:
        future = pool.submit(lambda: asyncio.run(take_async(url, lock.name)))
    eventually(lambda: len(lock.waiters()) > before)
    return future


def granted(lock: leaselock.Lock) -> leaselock.Lease:
    """Acquire a free lock."""
    return lock.acquire(timeout=TIMEOUT)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_waiter_is_woken_after_its_slot_moved(
    colour: str, cluster: Cluster, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    lock = client.lock(f"moved-{colour}", lease=LEASE)
    lease = granted(lock)
    waiter = waiting(pool, colour, lock, cluster.url)
    cluster.move_slot(cluster.slot(f"lock:{lock.name}"))
    # The server ends the subscription with an error, and the client subscribes again.
    eventually(lambda: heard(cluster, f"lock:{lock.name}"))
    assert len(lock.waiters()) == 1
    released = time.monotonic_ns()
    lease.release()
    at, token = waiter.result(TIMEOUT)
    assert token > lease.token
    assert at - released < SECOND


def test_a_request_during_a_move_waits_for_its_end(
    cluster: Cluster, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    lock = client.lock("half-way", lease=LEASE)
    before = granted(lock)
    move = cluster.begin_move(cluster.slot(f"lock:{lock.name}"))
    try:
        before.extend(LEASE)
        move.keys()
        # Until the end of the move, no server answers for a key that does not exist.
        pool.submit(finish_late, move)
        before.release()
        during = granted(lock)
        assert during.token > before.token
        during.release()
    finally:
        move.finish()
    after = granted(lock)
    assert after.token > during.token
    after.release()
    assert not lock.locked()


def finish_late(move: Move) -> None:
    """End the move after many redirects."""
    eventually(lambda: refusals(move.target) > MANY)
    move.finish()


def refusals(server: Redis) -> int:
    """Return how often a server answered TRYAGAIN."""
    found = server.info("errorstats").get("errorstat_TRYAGAIN", "count=0")
    return int(found.partition("=")[2])


@pytest.mark.parametrize("colour", COLOURS)
def test_java_and_python_wake_each_other_by_sharded_messages(
    colour: str, cluster: Cluster, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    build()
    lock = client.lock(f"java-{colour}", lease=LEASE)
    key = f"lock:{lock.name}"
    with Java([server.port for server in cluster.servers]) as java:
        java.wait()
        java.obey("a", "lock", key)
        python = waiting(pool, colour, lock, cluster.url)
        released = int(java.obey("a", "unlock", key))
        assert python.result(TIMEOUT)[0] - released < SECOND
        with lock:
            future = java.order("a", "lock", key)
            eventually(lambda: heard(cluster, key))
            released_at = time.monotonic_ns()
        assert int(future.result(TIMEOUT)) - released_at < SECOND
        java.obey("a", "unlock", key)


def heard(cluster: Cluster, name: str) -> bool:
    """Return whether a client listens for a release."""
    channel = f"redisson_lock__channel:{{{name}}}"
    owner = cluster.owner(cluster.slot(name))
    return bool(owner.ask("PUBSUB", "SHARDNUMSUB", channel)[1])


@pytest.mark.parametrize("colour", COLOURS)
def test_a_failover_keeps_holder_and_waiter(
    colour: str, client: leaselock.Client, cluster: Cluster, pool: ThreadPoolExecutor
) -> None:
    lock = client.lock(f"failed-{colour}", lease=LEASE)
    lease = granted(lock)
    waiter = waiting(pool, colour, lock, cluster.url)
    old = cluster.owner(cluster.slot(f"lock:{lock.name}"))
    cluster.fail_over(cluster.slot(f"lock:{lock.name}"))
    eventually(lambda: answered(lambda: len(lock.waiters()) == 1))
    assert not lease.lost
    lease.release()
    assert waiter.result(TIMEOUT)[1] > lease.token
    cluster.revive(old)


def answered(ask: Callable[[], object]) -> bool:
    """Return the reply; False if the connection was lost, as with a dead server."""
    try:
        return bool(ask())
    except leaselock.OutcomeUnknown:
        return False
