"""redis-py's own `Lock` and `protocol="string"` keep each other out, and wait for each other."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockNotOwnedError
from tests.pace import pace
from verification.interop.contest import (
    TURNS,
    all_ready,
    check_exclusion,
    contender,
    counts,
    finished,
    longest_waits,
    turns,
)

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testkit.servers.redis import Redis

pytestmark = pytest.mark.nightly

TIMEOUT = 30.0
KINDS = ["threads", "asyncio", "redis-py", "redis-py"]


@pytest.fixture
def peer(server: Redis) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as peer:
        yield peer


def test_what_redis_py_holds_is_busy_for_us(client: leaselock.Client, peer: redis.Redis) -> None:
    lock = client.lock("theirs", protocol="string")
    theirs = peer.lock("lock:theirs", timeout=30)
    assert theirs.acquire(blocking=False)
    assert lock.try_acquire() is None
    assert lock.try_acquire(timeout=0.2) is None
    theirs.release()
    lease = lock.acquire(timeout=0)
    lease.release()


def test_what_we_hold_is_busy_for_redis_py(client: leaselock.Client, peer: redis.Redis) -> None:
    theirs = peer.lock("lock:ours", timeout=30)
    with client.lock("ours", protocol="string"):
        assert not theirs.acquire(blocking=False)
    assert theirs.acquire(blocking=False)
    theirs.release()


def test_the_same_in_asyncio(server: Redis) -> None:
    asyncio.run(in_asyncio(server.url))


async def in_asyncio(url: str) -> None:
    async with redis.asyncio.Redis.from_url(url) as peer, leaselock.AsyncClient(url) as client:
        theirs = peer.lock("lock:async", timeout=30)
        ours = client.lock("async", protocol="string")
        async with ours:
            assert not await theirs.acquire(blocking=False)
        assert await theirs.acquire(blocking=False)
        assert await ours.try_acquire() is None
        await theirs.release()


def test_we_get_what_redis_py_gives_back(client: leaselock.Client, peer: redis.Redis) -> None:
    theirs = peer.lock("lock:given", timeout=30, thread_local=False)
    assert theirs.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(client.lock("given", protocol="string").acquire, timeout=TIMEOUT)
        # redis-py sends no message at a release, so the waiter has to poll.
        with pytest.raises(TimeoutError):
            waiter.result(0.2)
        theirs.release()
        assert waiter.result(TIMEOUT) is not None


def test_a_lock_of_ours_that_ran_out_is_not_released_twice(
    client: leaselock.Client, peer: redis.Redis
) -> None:
    lease = client.lock("over", protocol="string", lease=0.2, renew=False).acquire()
    assert lease is not None
    theirs = peer.lock("lock:over", timeout=30)
    assert theirs.acquire(blocking_timeout=TIMEOUT)
    with pytest.raises(leaselock.LeaseLost):
        lease.release()
    assert theirs.owned()
    theirs.release()


def test_a_lock_of_redis_py_that_ran_out_is_not_released_twice(
    client: leaselock.Client, peer: redis.Redis
) -> None:
    theirs = peer.lock("lock:over theirs", timeout=0.2)
    assert theirs.acquire()
    with client.lock("over theirs", protocol="string", timeout=TIMEOUT) as lease:
        with pytest.raises(LockNotOwnedError):
            theirs.release()
        lease.ensure()


def test_many_clients_of_both_never_hold_at_once_and_all_are_served(
    server: Redis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{server.url}?protocol=string"
    kinds = KINDS * 2
    with leaselock.Client(url) as client, client.lock("contended"):
        processes = [
            contender(
                kind,
                server.url if kind == "redis-py" else url,
                "contended",
                tmp_path / f"{kind} {number}",
            )
            for number, kind in enumerate(kinds)
        ]
        all_ready(tmp_path, len(kinds))
    finished(processes)
    found = turns(tmp_path)
    check_exclusion(found)
    assert counts(found) == {f"{kind} {number}": TURNS for number, kind in enumerate(kinds)}
    waits = longest_waits(found)
    with capsys.disabled():
        for file, seconds in waits.items():
            print(f"\n{file}: {counts(found)[file]} holds, longest wait {seconds:.2f} s", end="")
    # Without think time: the poller that has the lock takes it again at once, too.
    assert max(waits.values()) < 2.0 * pace(), waits
