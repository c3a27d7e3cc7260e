"""What differs between versions of Redis and Valkey: errors within scripts, sharded messages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from testkit.servers.cluster import Cluster
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from testkit.servers.rights import commands, of_cluster, user
from tests.backends.redis.test_findings import found

import leaselock
from leaselock import NotApplied

ALL = "user default on nopass ~* &* +@all"
pytestmark = pytest.mark.nightly
VERSIONS = ("valkey-9.1", "valkey-8.1", "redis-7.4", "redis-6.2")
every = pytest.mark.parametrize("version", VERSIONS, indirect=True)


def limited(*less: str) -> str:
    """A user without the rights *less*."""
    return f"user limited on >pw ~* &* -@all {' '.join(commands())} {' '.join(less)}"


@every
@pytest.mark.parametrize("command", ["-pexpire", "-set", "-hset"])
def test_a_missing_permission_inside_a_script_is_one(version: str, command: str) -> None:
    with Redis(acl=(ALL, limited(command))) as server:
        url = server.url.replace("://", "://limited:pw@")
        with leaselock.Client(url) as client, pytest.raises(NotApplied) as refused:
            client.lock("a").acquire(timeout=5)
    assert refused.value.reason == "denied"
    assert "permission denied" in str(refused.value)


@every
def test_a_replica_refuses_before_it_changes_anything(version: str) -> None:
    """READONLY is waited for: it is no unknown outcome, also where a script returns it."""
    with Redis() as server, leaselock.Client(server.url, op_timeout=1) as client:
        lease = client.lock("a").acquire()
        server.ask("REPLICAOF", "127.0.0.1", "1")
        for work in (client.lock("b").acquire, lambda timeout: lease.extend(30)):
            with pytest.raises(NotApplied, match="READONLY"):
                work(timeout=0.5)
        server.ask("REPLICAOF", "NO", "ONE")
        lease.extend(30)
        lease.release()


@every
def test_doctor_finds_a_server_without_memory(version: str) -> None:
    with Redis() as server:
        server.ask("CONFIG", "SET", "maxmemory", "1")
        level, what = found(server.url, "takes no writes now")
    assert (level, "OOM command not allowed" in what) == ("fail", True)


@every
@pytest.mark.parametrize("kind", ["lock", "semaphore"])
def test_the_first_request_of_a_cluster_client_may_meet_a_waiter(version: str, kind: str) -> None:
    """Whether messages are sharded is known before the first command that depends on it."""
    worker = user("worker", "pw", "~*", more=of_cluster())

    def lock(client: leaselock.Client) -> leaselock.Lock:
        return client.lock("a") if kind == "lock" else client.semaphore("a", 1)

    with (
        Cluster((ALL, worker), "worker:pw@") as cluster,
        ThreadPoolExecutor(2) as pool,
        leaselock.Client(cluster.url) as holder,
        leaselock.Client(cluster.url) as waiting,
        leaselock.Client(cluster.url) as new,
    ):
        lease = lock(holder).acquire()
        waiter = pool.submit(lock(waiting).acquire, timeout=60)
        eventually(lambda: len(lock(holder).waiters()) == 1)
        second = pool.submit(lock(new).acquire, timeout=60)
        eventually(lambda: second.done() or len(lock(holder).waiters()) == 2)
        lease.release()
        waiter.result().release()
        second.result().release()
        lock(new).acquire().release()


@every
def test_the_first_request_of_a_cluster_client_may_free_a_lock_that_is_waited_for(
    version: str,
) -> None:
    worker = user("worker", "pw", "~*", more=of_cluster())
    with (
        Cluster((ALL, worker), "worker:pw@") as cluster,
        ThreadPoolExecutor(1) as pool,
        leaselock.Client(cluster.url) as holder,
        leaselock.Client(cluster.url) as waiting,
        leaselock.Client(cluster.url) as new,
    ):
        holder.lock("a").acquire()
        waiter = pool.submit(waiting.lock("a").acquire, timeout=60)
        eventually(lambda: holder.lock("a").waiters())
        cluster.owner(cluster.slot("lock:a")).ask("DEL", "lock:a")
        assert new.lock("a").try_acquire() is None
        waiter.result().release()


@pytest.mark.parametrize("version", ["valkey-9.1"], indirect=True)
def test_both_forms_name_the_same_database_of_a_cluster(version: str) -> None:
    with (
        Cluster((), "", "cluster-databases", "4") as cluster,
        leaselock.Client(f"{cluster.url}/1") as path,
        leaselock.Client(f"{cluster.url}?db=1") as option,
        leaselock.Client(cluster.url) as first,
        path.lock("a"),
    ):
        assert option.lock("a").locked()
        assert option.lock("a").try_acquire() is None
        assert not first.lock("a").locked()


@every
@pytest.mark.parametrize("form", ["/1", "?db=1"])
def test_a_cluster_without_databases_refuses_both_forms(version: str, form: str) -> None:
    with Cluster() as cluster, leaselock.Client(f"{cluster.url}{form}") as client:
        with pytest.raises(NotApplied) as refused:
            client.lock("a").acquire(timeout=5)
        assert refused.value.reason == "misconfigured"
