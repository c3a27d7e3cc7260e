"""A cluster whose slots move and whose masters die, under holders and waiters; and Java in it.

Law: a move changes nothing for anybody; a failover keeps what its replica had; a waiter is found by
the message wherever the slot is.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.interop.java import Java, build
from tests.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor

    from tests.servers.cluster import Cluster, Move
    from tests.servers.redis import Redis

COLOURS = ("threads", "asyncio")
LEASE = 60.0
PATIENCE = 30.0
SECOND = 1_000_000_000
MANY = 10


def take(url: str, name: str) -> tuple[int, int]:
    """Wait for the lock and give it back; when it was granted, and its token."""
    client = leaselock.Client(url, op_timeout=PATIENCE)
    with client, client.lock(name, lease=LEASE, timeout=PATIENCE) as lease:
        return time.monotonic_ns(), lease.token


async def take_async(url: str, name: str) -> tuple[int, int]:
    client = leaselock.AsyncClient(url, op_timeout=PATIENCE)
    async with client, client.lock(name, lease=LEASE, timeout=PATIENCE) as lease:
        return time.monotonic_ns(), lease.token


def waiting(
    pool: ThreadPoolExecutor, colour: str, lock: leaselock.Lock, url: str
) -> Future[tuple[int, int]]:
    """Somebody who waits now."""
    before = len(lock.waiters())
    if colour == "threads":
        future = pool.submit(take, url, lock.name)
    else:
        future = pool.submit(lambda: asyncio.run(take_async(url, lock.name)))
    eventually(lambda: len(lock.waiters()) > before)
    return future


def granted(lock: leaselock.Lock) -> leaselock.Lease:
    """The lease of a lock that is free."""
    lease = lock.acquire(PATIENCE)
    assert lease is not None
    return lease


@pytest.mark.parametrize("colour", COLOURS)
def test_who_waits_while_the_slot_moves_is_found_afterwards(
    colour: str, cluster: Cluster, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    lock = client.lock(f"moved-{colour}", lease=LEASE)
    lease = granted(lock)
    waiter = waiting(pool, colour, lock, cluster.url)
    cluster.move_slot(cluster.slot(lock.name))
    # It is told that its subscription has ended, and listens anew: so it need not look by itself.
    eventually(lambda: heard(cluster, lock.name))
    assert len(lock.waiters()) == 1
    released = time.monotonic_ns()
    lease.release()
    at, token = waiter.result(PATIENCE)
    assert token > lease.token
    assert at - released < SECOND


def test_in_the_middle_of_a_move_the_end_of_it_is_waited_for(
    cluster: Cluster, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    lock = client.lock("half-way", lease=LEASE)
    before = granted(lock)
    move = cluster.begin_move(cluster.slot(lock.name))
    try:
        before.extend(LEASE)
        move.keys()
        # Of a lock's keys some do not exist, which no server takes for granted before the end.
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
    """End the move when many questions were sent from one server to the other."""
    eventually(lambda: refusals(move.target) > MANY)
    move.finish()


def refusals(server: Redis) -> int:
    """How often a server said "try again"."""
    found = server.info("errorstats").get("errorstat_TRYAGAIN", "count=0")
    return int(found.partition("=")[2])


@pytest.mark.parametrize("colour", COLOURS)
def test_java_and_python_wake_each_other_by_sharded_messages(
    colour: str, cluster: Cluster, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    build()
    lock = client.lock(f"java-{colour}", lease=LEASE)
    with Java([server.port for server in cluster.servers]) as java:
        java.wait()
        java.obey("a", "lock", lock.name)
        python = waiting(pool, colour, lock, cluster.url)
        released = int(java.obey("a", "unlock", lock.name))
        assert python.result(PATIENCE)[0] - released < SECOND
        with lock:
            future = java.order("a", "lock", lock.name)
            eventually(lambda: heard(cluster, lock.name))
            given_back = time.monotonic_ns()
        assert int(future.result(PATIENCE)) - given_back < SECOND
        java.obey("a", "unlock", lock.name)


def heard(cluster: Cluster, name: str) -> bool:
    """Whether somebody listens for a release."""
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
    old = cluster.owner(cluster.slot(lock.name))
    cluster.fail_over(cluster.slot(lock.name))
    eventually(lambda: known(lambda: len(lock.waiters()) == 1))
    assert not lease.lost
    lease.release()
    assert waiter.result(PATIENCE)[1] > lease.token
    cluster.revive(old)


def known(ask: Callable[[], object]) -> bool:
    """Ask until it is answered: the line to a dead server gives Unknown once."""
    try:
        return bool(ask())
    except leaselock.OutcomeUnknown:
        return False
