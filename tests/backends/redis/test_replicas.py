"""Grants that wait for replicas, and servers without memory or in the role of a replica."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

SOON = 10.0


@pytest.fixture
def pair() -> Iterator[tuple[Redis, Redis]]:
    with Redis() as master, Redis(replica_of=master) as replica:
        eventually(lambda: "master_link_status:up" in str(replica.ask("INFO", "replication")))
        yield master, replica


def granted(lock: leaselock.Lock) -> bool:
    """Return whether the lock was granted; on a busy machine the replica may be too slow."""
    try:
        return lock.try_acquire() is not None
    except leaselock.StoreError:
        return False


def test_a_grant_is_confirmed_by_its_replicas(pair: tuple[Redis, Redis]) -> None:
    master, replica = pair

    with leaselock.Client(f"{master.url}?replicas=1") as client:
        lock = client.lock("a")
        eventually(lambda: granted(lock))
        assert replica.ask("EXISTS", "lock:a") == 1
        lock.release()


def test_a_grant_that_no_replica_confirms_is_undone(pair: tuple[Redis, Redis]) -> None:
    """WAIT counts too few replicas: the lock is released, and the error says so (hazard G1)."""
    master, replica = pair
    replica.pause()
    try:
        with leaselock.Client(f"{master.url}?replicas=1") as client:
            # On a busy machine the operation may time out before WAIT returns.
            message = "0 of 1 replicas confirmed|did not answer"
            with pytest.raises(leaselock.StoreError, match=message):
                client.lock("a").acquire(timeout=0)
            eventually(lambda: not master.ask("EXISTS", "lock:a"))
    finally:
        replica.cont()
    with leaselock.Client(f"{master.url}?replicas=1") as client:
        lock = client.lock("a")
        eventually(lambda: granted(lock))
        lock.release()


def test_a_waiter_whose_grant_no_replica_confirms_goes_on_waiting(
    pair: tuple[Redis, Redis],
) -> None:
    """The grant is undone, but the claim stays in the queue."""
    master, replica = pair
    counter = "redisson_lock_token:{lock:a}"
    with leaselock.Client(master.url) as holder, ThreadPoolExecutor() as pool:
        lease = holder.lock("a").acquire()
        assert lease is not None
        token = master.ask("GET", counter)
        with leaselock.Client(f"{master.url}?replicas=1") as client:
            replica.pause()
            try:
                waiter = pool.submit(client.lock("a").acquire, timeout=3 * SOON)
                eventually(lambda: master.ask("EXISTS", "leaselock:queue:{lock:a}"))
                lease.release()
                eventually(lambda: master.ask("GET", counter) != token)
                eventually(lambda: not master.ask("EXISTS", "lock:a"))
            finally:
                replica.cont()
            assert waiter.result() is not None


def test_a_replica_refuses_locks(pair: tuple[Redis, Redis]) -> None:
    _, replica = pair
    with leaselock.Client(replica.url, op_timeout=0.5) as client:
        with pytest.raises(leaselock.NotApplied, match="READONLY"):
            client.lock("a").acquire(timeout=0)
        assert any(finding.level == "fail" for finding in client.doctor())


@pytest.mark.parametrize("waited", [False, True])
def test_a_server_without_memory_accepts_a_release(waited: bool) -> None:
    """Without memory a release is still possible; an acquire is refused (hazard G5)."""
    with Redis() as server, leaselock.Client(server.url) as client:
        lease = client.lock("a").acquire()
        assert lease is not None
        with leaselock.Client(server.url) as other:
            if waited:
                assert other.lock("a").try_acquire(timeout=0.1) is None
            server.ask("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(leaselock.NotApplied, match="no memory left"):
                other.lock("b").acquire(timeout=0)
            lease.release()
            assert server.ask("EXISTS", "lock:a") == 0
            server.ask("CONFIG", "SET", "maxmemory", "0")
            with other.lock("b", timeout=SOON):
                pass
