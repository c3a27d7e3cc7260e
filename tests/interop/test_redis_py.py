"""redis-py's own `Lock` and `protocol="string"` keep each other out, and wait for each other."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockNotOwnedError
from tests.interop.crowd import (
    check_exclusion,
    contender,
    counts,
    end_of_contest,
    finished,
    turns,
)

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.redis import Redis

PATIENCE = 30.0
KINDS = ["threads", "asyncio", "redis-py", "redis-py"]


@pytest.fixture
def peer(server: Redis) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as peer:
        yield peer


def test_what_redis_py_holds_is_busy_for_us(client: leaselock.Client, peer: redis.Redis) -> None:
    lock = client.lock("theirs", protocol="string")
    theirs = peer.lock("theirs", timeout=30)
    assert theirs.acquire(blocking=False)
    assert lock.acquire(timeout=0) is None
    assert lock.acquire(timeout=0.2) is None
    theirs.release()
    lease = lock.acquire(timeout=0)
    assert lease is not None
    lease.release()


def test_what_we_hold_is_busy_for_redis_py(client: leaselock.Client, peer: redis.Redis) -> None:
    theirs = peer.lock("ours", timeout=30)
    with client.lock("ours", protocol="string"):
        assert not theirs.acquire(blocking=False)
    assert theirs.acquire(blocking=False)
    theirs.release()


def test_the_same_in_asyncio(server: Redis) -> None:
    asyncio.run(in_asyncio(server.url))


async def in_asyncio(url: str) -> None:
    async with redis.asyncio.Redis.from_url(url) as peer, leaselock.AsyncClient(url) as client:
        theirs = peer.lock("async", timeout=30)
        ours = client.lock("async", protocol="string")
        async with ours:
            assert not await theirs.acquire(blocking=False)
        assert await theirs.acquire(blocking=False)
        assert await ours.acquire(timeout=0) is None
        await theirs.release()


def test_we_get_what_redis_py_gives_back(client: leaselock.Client, peer: redis.Redis) -> None:
    theirs = peer.lock("given", timeout=30, thread_local=False)
    assert theirs.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(client.lock("given", protocol="string").acquire, PATIENCE)
        # redis-py tells nobody of a release: to be seen, the waiter has to look by itself.
        with pytest.raises(TimeoutError):
            waiter.result(0.2)
        theirs.release()
        assert waiter.result(PATIENCE) is not None


def test_a_lock_of_ours_that_ran_out_is_not_released_twice(
    client: leaselock.Client, peer: redis.Redis
) -> None:
    lease = client.lock("over", protocol="string", lease=0.2, renew=False).acquire()
    assert lease is not None
    theirs = peer.lock("over", timeout=30)
    assert theirs.acquire(blocking_timeout=PATIENCE)
    with pytest.raises(leaselock.LeaseLost):
        lease.release()
    assert theirs.owned()
    theirs.release()


def test_a_lock_of_redis_py_that_ran_out_is_not_released_twice(
    client: leaselock.Client, peer: redis.Redis
) -> None:
    theirs = peer.lock("over theirs", timeout=0.2)
    assert theirs.acquire()
    with client.lock("over theirs", protocol="string", timeout=PATIENCE) as lease:
        with pytest.raises(LockNotOwnedError):
            theirs.release()
        lease.ensure()


def test_a_crowd_of_both_never_holds_at_once(server: Redis, tmp_path: Path) -> None:
    end = end_of_contest(preparation=2.0)
    url = f"{server.url}?protocol=string"
    finished(
        [
            contender(
                kind,
                server.url if kind == "redis-py" else url,
                "crowd",
                end,
                tmp_path / str(number),
            )
            for number, kind in enumerate(KINDS * 2)
        ]
    )
    found = turns(tmp_path)
    check_exclusion(found)
    assert len(counts(found)) == 8, counts(found)
