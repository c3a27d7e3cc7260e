"""Servers that restart with or without their data, or are replaced by another server.

Invariants: a waiter enters the queue again, a holder that the server does not know reports its
loss, and tokens always increase.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from testkit.servers.sentinel import Sentinels

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future, ThreadPoolExecutor

pytestmark = pytest.mark.heavy

COLOURS = ("threads", "asyncio")
LEASE = 3.0
LONG = 60.0
TIMEOUT = 30.0


@pytest.fixture
def own() -> Iterator[Redis]:
    """A server that this test may end."""
    with Redis(appendonly=True) as own:
        yield own


@pytest.fixture
def sentinels() -> Iterator[Sentinels]:
    with Sentinels() as sentinels:
        yield sentinels


def take(url: str, lease: float) -> int:
    """Wait for the lock, release it, and return its token."""
    client = leaselock.Client(url, op_timeout=TIMEOUT)
    with client, client.lock("a", lease=lease, timeout=TIMEOUT) as grant:
        return grant.token


async def take_async(url: str, lease: float) -> int:
    client = leaselock.AsyncClient(url, op_timeout=TIMEOUT)
    async with client, client.lock("a", lease=lease, timeout=TIMEOUT) as grant:
        return grant.token


def waiting(
    pool: ThreadPoolExecutor, colour: str, lock: leaselock.Lock, url: str, lease: float
) -> Future[int]:
    """Start a waiter, and return when it is in the queue."""
    before = len(lock.waiters())
    if colour == "threads":
        future = pool.submit(take, url, lease)
    else:
        future = pool.submit(lambda: asyncio.run(take_async(url, lease)))
    eventually(lambda: len(lock.waiters()) > before)
    return future


def answered(ask: Callable[[], object]) -> bool:
    """Return the reply; False if the connection was lost, as after a restart."""
    try:
        return bool(ask())
    except leaselock.OutcomeUnknown:
        return False


@pytest.mark.parametrize("colour", COLOURS)
def test_a_restart_with_the_data_changes_nothing(
    colour: str, own: Redis, pool: ThreadPoolExecutor
) -> None:
    with leaselock.Client(own.url) as client:
        lock = client.lock("a", lease=LONG)
        lease = lock.acquire()
        assert lease is not None
        waiter = waiting(pool, colour, lock, own.url, LONG)
        own.restart(keep_data=True)
        eventually(lambda: answered(lambda: len(lock.waiters()) == 1))
        assert not waiter.done()
        assert not lease.lost
        lease.release()
        assert waiter.result(TIMEOUT) > lease.token


@pytest.mark.parametrize("colour", COLOURS)
def test_a_restart_without_the_data_ends_the_hold_and_not_the_wait(
    colour: str, own: Redis, pool: ThreadPoolExecutor
) -> None:
    with leaselock.Client(own.url) as client:
        lock = client.lock("a", lease=LEASE)
        lease = lock.acquire()
        assert lease is not None
        waiter = waiting(pool, colour, lock, own.url, LEASE)
        own.restart(keep_data=False)
        assert waiter.result(TIMEOUT) > lease.token
        eventually(lambda: lease.lost)
        with pytest.raises(leaselock.LeaseLost):
            lease.release()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_failover_is_followed(
    colour: str, sentinels: Sentinels, pool: ThreadPoolExecutor
) -> None:
    with leaselock.Client(sentinels.url, op_timeout=20.0) as client:
        lock = client.lock("a", lease=LONG)
        lease = lock.acquire()
        assert lease is not None
        waiter = waiting(pool, colour, lock, sentinels.url, LONG)
        sentinels.fail_over()
        assert not lease.lost
        eventually(lambda: answered(lock.holder))
        lease.release()
        assert waiter.result(TIMEOUT) > lease.token


def test_a_holder_unknown_to_the_new_master_reports_its_loss(sentinels: Sentinels) -> None:
    with leaselock.Client(sentinels.url) as client:
        lease = client.lock("a", lease=LEASE).acquire()
        assert lease is not None
        sentinels.fail_over().ask("FLUSHALL")
        with leaselock.Client(sentinels.url, op_timeout=20.0) as other:
            successor = other.lock("a").acquire(timeout=TIMEOUT)
            assert successor.token > lease.token
            eventually(lambda: lease.lost)
