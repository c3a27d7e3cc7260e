"""Servers that go away and come back, with their data, without it, or as another server.

Law: a waiter finds its way back into the queue, a holder of whom the server knows nothing is told
of the loss, and tokens rise all the time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.servers.process import eventually
from tests.servers.redis import Redis
from tests.servers.sentinel import Sentinels

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future, ThreadPoolExecutor

COLOURS = ("threads", "asyncio")
LEASE = 3.0
LONG = 60.0
PATIENCE = 30.0


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
    """Wait for the lock, and give it back; its token."""
    client = leaselock.Client(url, op_timeout=PATIENCE)
    with client, client.lock("a", lease=lease, timeout=PATIENCE) as grant:
        return grant.token


async def take_async(url: str, lease: float) -> int:
    client = leaselock.AsyncClient(url, op_timeout=PATIENCE)
    async with client, client.lock("a", lease=lease, timeout=PATIENCE) as grant:
        return grant.token


def waiting(
    pool: ThreadPoolExecutor, colour: str, lock: leaselock.Lock, url: str, lease: float
) -> Future[int]:
    """Somebody who waits now."""
    before = len(lock.waiters())
    if colour == "threads":
        future = pool.submit(take, url, lease)
    else:
        future = pool.submit(lambda: asyncio.run(take_async(url, lease)))
    eventually(lambda: len(lock.waiters()) > before)
    return future


def known(ask: Callable[[], object]) -> bool:
    """Ask until it is answered: a line that the server has just closed gives Unknown once."""
    try:
        return bool(ask())
    except leaselock.OutcomeUnknown:
        return False


def extended(lease: leaselock.Lease) -> bool:
    """The store knows the lease, and has made it longer."""
    lease.extend(LONG)
    return True


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
        eventually(lambda: known(lambda: len(lock.waiters()) == 1))
        assert not waiter.done()
        assert not lease.lost
        lease.release()
        assert waiter.result(PATIENCE) > lease.token


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
        assert waiter.result(PATIENCE) > lease.token
        eventually(lambda: lease.lost)
        with pytest.raises(leaselock.LeaseLost):
            lease.release()


def test_a_server_that_is_killed_and_comes_back_knows_its_holder(own: Redis) -> None:
    with leaselock.Client(own.url) as client:
        with client.lock("a", lease=LONG) as lease:
            own.kill()
            own.restart()
            eventually(lambda: known(lambda: extended(lease)))
        assert not client.lock("a").locked()


def test_a_frozen_server_is_told_as_loss_when_the_lease_is_over(own: Redis) -> None:
    with leaselock.Client(own.url, op_timeout=1.0) as client:
        lease = client.lock("a", lease=1.0).acquire()
        assert lease is not None
        own.pause()
        eventually(lambda: lease.lost)
        own.cont()
        with pytest.raises(leaselock.LeaseLost):
            lease.release()
        assert client.lock("a").acquire(timeout=PATIENCE) is not None


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
        eventually(lambda: known(lock.holder))
        lease.release()
        assert waiter.result(PATIENCE) > lease.token


def test_a_holder_whom_the_new_master_does_not_know_is_told(sentinels: Sentinels) -> None:
    with leaselock.Client(sentinels.url) as client:
        lease = client.lock("a", lease=LEASE).acquire()
        assert lease is not None
        sentinels.fail_over().ask("FLUSHALL")
        with leaselock.Client(sentinels.url, op_timeout=20.0) as other:
            heir = other.lock("a").acquire(timeout=PATIENCE)
            assert heir is not None
            assert heir.token > lease.token
            eventually(lambda: lease.lost)
