"""A lease that was lost is reported as LeaseLost, whatever failed underneath."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from tests.pace import pace

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable

    from testkit.servers.redis import Redis

TIMEOUT = 60.0
# Multiplied by the pace: the time of the lease and that of a request.
LEASE = 0.5
# A server that is frozen shows in the first tier at the end of a body, in threads; there one that
# is killed shows in all other ways.
FROZEN_FIRST = [pytest.param("kill", marks=pytest.mark.variant), "pause"]
KILLED_FIRST = ["kill", pytest.param("pause", marks=pytest.mark.variant)]


def strike(redis: Redis, fault: str) -> Callable[[], None]:
    """Kill the server, or freeze it."""
    strike: Callable[[], None] = getattr(redis, fault)
    return strike


@pytest.mark.parametrize("fault", FROZEN_FIRST)
def test_end_of_with_after_loss_raises_lease_lost(redis: Redis, fault: str) -> None:
    with leaselock.Client(redis.url, op_timeout=LEASE * pace()) as client:
        lock = client.lock("a", lease=LEASE * pace())
        with pytest.raises(leaselock.LeaseLost) as raised, lock as lease:  # noqa: PT012
            strike(redis, fault)()
            eventually(lambda: lease.lost)
    assert isinstance(raised.value.__cause__, leaselock.StoreError)


@pytest.mark.parametrize("fault", KILLED_FIRST)
def test_release_after_loss_raises_lease_lost(redis: Redis, fault: str) -> None:
    with leaselock.Client(redis.url, op_timeout=LEASE * pace()) as client:
        lease = client.lock("a", lease=LEASE * pace()).acquire()
        assert lease is not None
        strike(redis, fault)()
        eventually(lambda: lease.lost)
        with pytest.raises(leaselock.LeaseLost) as raised:
            lease.release()
    assert isinstance(raised.value.__cause__, leaselock.StoreError)


def test_release_that_finds_a_loss_calls_on_lost(redis: Redis) -> None:
    called = threading.Event()
    with leaselock.Client(redis.url, op_timeout=LEASE * pace()) as client:
        lease = client.lock("a", lease=LEASE * pace(), renew=False).acquire()
        assert lease is not None
        lease.on_lost(lambda _: called.set())
        redis.kill()
        eventually(lambda: lease.lost)
        with pytest.raises(leaselock.LeaseLost):
            lease.release()
        assert called.wait(TIMEOUT)


@pytest.mark.parametrize("fault", KILLED_FIRST)
def test_body_in_asyncio_is_cancelled_and_ends_with_lease_lost(redis: Redis, fault: str) -> None:
    async def main() -> None:
        client = leaselock.AsyncClient(redis.url, op_timeout=LEASE * pace())
        async with client, client.lock("a", lease=LEASE * pace()):
            strike(redis, fault)()
            await asyncio.Event().wait()

    with pytest.raises(leaselock.LeaseLost) as raised:
        asyncio.run(asyncio.wait_for(main(), TIMEOUT))
    assert isinstance(raised.value.__cause__, leaselock.StoreError)
