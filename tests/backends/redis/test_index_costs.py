"""What it costs a server to list the locks, as it counts it itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import HOST
from testkit.servers.redis import Redis
from testkit.servers.sentinel import Sentinels

import leaselock
from leaselock._backends.redis.index import WALK_PAGES
from leaselock._backends.redis.keys import index_of

if TYPE_CHECKING:
    from testkit.servers.cluster import Cluster

FOREIGN = 20_000
FILL = "for i = 1, ARGV[1] do redis.call('SET', 'session:' .. i, '') end"
LOCKS = 20
IDLE = 500_000
INDEX = "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], i, 'lock:idle:' .. i) end"
PAIRS = 1000
MANY = 300


def calls(server: Redis) -> dict[str, int]:
    """How often each command was called since the figures were reset."""
    stats = server.info("commandstats")
    return {
        key.removeprefix("cmdstat_"): int(value.partition("=")[2].partition(",")[0])
        for key, value in stats.items()
    }


def test_a_list_does_not_depend_on_the_other_keys(server: Redis) -> None:
    server.ask("FLUSHALL")
    server.ask("EVAL", FILL, 0, FOREIGN)
    with leaselock.Client(server.url) as holder, leaselock.Client(server.url) as client:
        assert client.indexed
        leases = [holder.lock(f"order:{number}").acquire() for number in range(LOCKS)]
        assert client.locks("none") == []
        server.ask("CONFIG", "RESETSTAT")
        assert len(client.locks()) == LOCKS
        found = calls(server)
        assert "scan" not in found
        assert found["evalsha"] == LOCKS
        # The index, whether each lock exists, and what the script that reads a lock calls.
        assert found["exists"] == LOCKS
        assert found["zrange"] == LOCKS + 1
        server.ask("CONFIG", "RESETSTAT")
        assert len(client.locks(walk=True)) == LOCKS
        assert calls(server)["scan"] > FOREIGN / 1000
        for lease in leases:
            lease.release()
    server.ask("FLUSHALL")


@pytest.mark.heavy
def test_a_list_and_a_pair_beside_many_names_in_the_index() -> None:
    """As after a minute in which thousands of names a second were locked once."""
    with (
        Redis() as server,
        leaselock.Client(server.url) as holder,
        leaselock.Client(server.url, op_timeout=30) as client,
    ):
        names = [f"order:{number:02}" for number in range(LOCKS)]
        leases = [holder.lock(name, lease=3600, renew=False).acquire() for name in names]
        holder.lock("pair").acquire().release()
        server.ask("EVAL", INDEX, 1, index_of(None, "lock:"), IDLE)
        server.ask("CONFIG", "RESETSTAT")
        for _ in range(PAIRS):
            holder.lock("pair").acquire().release()
        # As beside none: by the scripts that grant. The trimming of a few releases is the rest.
        assert calls(server)["zadd"] == PAIRS
        assert calls(server)["evalsha"] < 2.1 * PAIRS
        server.ask("CONFIG", "RESETSTAT")
        assert [lock.name for lock in client.locks()] == names
        found = calls(server)
        # Beside those of scripts, one for each page of names, and one for each 100 of them.
        assert found["zrange"] < LOCKS + IDLE / 5000 + 5
        assert "scan" not in found
        assert client.gc() > IDLE / 2
        server.ask("CONFIG", "RESETSTAT")
        assert [lock.name for lock in client.locks()] == names
        assert calls(server)["exists"] <= LOCKS + 1
        for lease in leases:
            lease.release()


def test_a_user_who_may_only_read_lists_the_locks() -> None:
    everything = "user default on nopass ~* &* +@all"
    reader = "user reader on >pw ~* &* +@read +@scripting +@connection +@pubsub +info"
    with Redis(acl=(everything, reader)) as server, leaselock.Client(server.url) as holder:
        holder.lock("idle").acquire().release()
        lease = holder.lock("held").acquire()
        server.ask("HSET", "lock:java", "053008ff-bcd9-fd3c-bec3-cc01444196c0:1", "1")
        with leaselock.Client(f"redis://reader:pw@{HOST}:{server.port}") as client:
            for _ in range(2):
                assert [lock.name for lock in client.locks()] == ["held"]
                assert [lock.name for lock in client.locks(walk=True)] == ["held", "java"]
        assert [lock.name for lock in holder.locks()] == ["held"]
        lease.release()


@pytest.mark.heavy
def test_the_locks_of_a_cluster_are_listed_from_the_index_of_each_slot(
    cluster: Cluster, client: leaselock.Client
) -> None:
    names = [f"index:{number}" for number in range(LOCKS)]
    leases = {name: client.lock(name).acquire() for name in names}
    masters = cluster.masters()
    for server in masters:
        server.ask("CONFIG", "RESETSTAT")
    assert [lock.name for lock in client.locks("index:*")] == sorted(names)
    found = [calls(server) for server in masters]
    assert not any("scan" in each for each in found)
    assert sum(each["zrange"] for each in found) == 16384 + LOCKS
    # A slot that moves takes its index along.
    cluster.move_slot(cluster.slot(f"lock:{names[0]}"))
    assert [lock.name for lock in client.locks("index:*")] == sorted(names)
    leases.pop(names[0]).release()
    assert [lock.name for lock in client.locks("index:*")] == sorted(names[1:])
    for lease in leases.values():
        lease.release()
    assert client.locks("index:*") == client.locks("index:*", walk=True) == []


@pytest.mark.heavy
def test_the_next_master_of_a_sentinel_has_the_index() -> None:
    names = [f"order:{number:02}" for number in range(LOCKS)]
    with Sentinels() as sentinels, leaselock.Client(sentinels.url, op_timeout=30.0) as client:
        assert client.indexed
        sentinels.master.ask("EVAL", FILL, 0, FOREIGN)
        leases = [client.lock(name, lease=3600, renew=False).acquire() for name in names]
        for failed in (False, True):
            server = sentinels.fail_over() if failed else sentinels.master
            server.ask("CONFIG", "RESETSTAT")
            assert [lock.name for lock in client.locks()] == names
            found = calls(server)
            assert found["zrange"] == LOCKS + 1
            # Not the whole walk, but a part of it.
            assert found.get("scan", 0) <= WALK_PAGES < FOREIGN / 1000
        leases.pop(0).release()
        assert [lock.name for lock in client.locks()] == names[1:]
        for lease in leases:
            lease.release()
        assert client.locks() == client.locks(walk=True) == []


def test_a_list_reads_many_locks_in_few_round_trips(server: Redis) -> None:
    server.ask("FLUSHALL")
    with leaselock.Client(server.url) as holder, leaselock.Client(server.url) as client:
        leases = [holder.lock(f"order:{number:03}").acquire() for number in range(MANY)]
        server.ask("SCRIPT", "FLUSH")
        before = int(server.info("stats")["total_reads_processed"])
        found = client.locks()
        packets = int(server.info("stats")["total_reads_processed"]) - before
        assert [lock.name for lock in found] == [f"order:{number:03}" for number in range(MANY)]
        assert packets < MANY / 3
        for lease in leases:
            lease.release()
    server.ask("FLUSHALL")
