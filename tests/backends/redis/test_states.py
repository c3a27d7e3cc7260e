"""Unusual states of a Redis server, and interference by other programs.

Invariant: no waiter waits for ever because of what others do to a connection, a channel or a key.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from redis import Redis as RedisPy
from testkit.servers.process import HOST, eventually
from testkit.servers.redis import Redis
from testkit.servers.sentinel import NAME, Sentinel
from tests.backends.redis.test_restart import COLOURS, LONG, TIMEOUT, waiting
from verification.fuzz.hostile import Hostile

import leaselock
from leaselock._backends.redis import scripted_backend
from leaselock._backends.redis.keys import keys_of, release_channel, tombstone, wake_channel

if TYPE_CHECKING:
    import socket
    from pathlib import Path
    from typing import BinaryIO

pytestmark = pytest.mark.heavy

# In one step of the server, so that it sends nothing in between. Some versions do not count a large
# message, which all listeners share, as part of their buffers.
OVERRUN = "for _ = 1, 300 do redis.call('PUBLISH', KEYS[1], ARGV[1]) end"
MUCH = "x" * 1000


@pytest.fixture
def empty(server: Redis) -> Redis:
    server.ask("FLUSHALL")
    return server


def listeners(server: Redis) -> set[str]:
    """Return the identifiers of the connections with subscriptions."""
    connections = server.ask("CLIENT", "LIST", "TYPE", "pubsub")
    return {line.split()[0] for line in connections.splitlines()}


@pytest.mark.parametrize("colour", COLOURS)
def test_a_listener_cut_off_by_its_output_buffer_is_woken(
    colour: str, pool: ThreadPoolExecutor
) -> None:
    """Another program exceeds the output buffer limit of the listener (hazard E9)."""
    with Redis() as own, leaselock.Client(own.url) as client:
        own.ask("CONFIG", "SET", "client-output-buffer-limit", "pubsub 64kb 64kb 1")
        lock = client.lock("a", lease=LONG)
        lease = lock.acquire()
        assert lease is not None
        waiter = waiting(pool, colour, lock, own.url, LONG)
        eventually(lambda: own.ask("PUBSUB", "CHANNELS"))
        before = listeners(own)
        for channel in own.ask("PUBSUB", "CHANNELS"):
            own.ask("EVAL", OVERRUN, 1, channel, MUCH)
        eventually(lambda: not before & listeners(own))
        lease.release()
        assert waiter.result(TIMEOUT) > lease.token


@pytest.mark.parametrize("colour", COLOURS)
def test_a_release_published_in_a_sharded_channel_is_found(
    colour: str, empty: Redis, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of Redisson uses sharded channels (hazard E10)."""
    monkeypatch.setattr(scripted_backend, "RECHECK_MS", 500)
    empty.ask("HSET", "lock:a", "00000000-0000-0000-0000-000000000001:1", 1)
    empty.ask("PEXPIRE", "lock:a", 60_000)
    with leaselock.Client(empty.url) as client:
        waiter = waiting(pool, colour, client.lock("a"), empty.url, LONG)
        empty.ask("DEL", "lock:a")
        empty.ask("SPUBLISH", release_channel("lock:a"), "0")
        assert waiter.result(TIMEOUT) > 0


def test_a_client_that_decodes_replies_locks_as_well(empty: Redis) -> None:
    """The options of the user's redis-py client have no effect (hazard G14)."""
    theirs = RedisPy(host=HOST, port=empty.port, decode_responses=True)
    with leaselock.Client(theirs) as client, leaselock.Client(empty.url) as other:
        with client.lock("ä", lease=LONG) as lease:
            assert other.lock("ä").try_acquire() is None
            lease.extend(LONG)
            holder = other.lock("ä").holder()
            assert holder is not None
            assert holder.token == lease.token
        assert not other.lock("ä").locked()
    theirs.close()


# The keys of Redisson, redis-py and this library for the lock "a", and the keys of those names.
ODD = [
    *("a", "{a}", "{{a}}", "a}", "{a", "redisson_lock", "leaselock:", "leaselock:lock:{a}"),
    *keys_of("a", ""),
    *keys_of("{a}", ""),
    *(tombstone("a", "0:1"), release_channel("a"), wake_channel("a"), "redisson_unlock_latch:{a}"),
]
NAMES = list(dict.fromkeys([*ODD, *(key for name in ODD for key in keys_of(name, ""))]))


@pytest.mark.parametrize("prefix", ["", "lock:"])
def test_no_key_of_a_lock_is_a_key_of_another(empty: Redis, prefix: str) -> None:
    """Locks whose names look like keys of other locks are independent of them (hazard L3)."""
    keys = [key for name in NAMES for key in keys_of(name, prefix)]
    # Redisson uses one counter for "a" and "{a}", which never decreases.
    others = {key for key in keys if not key.startswith("redisson_lock_token:")}
    each = len(keys_of("a", prefix)) - 1
    assert len(others) == each * len(NAMES)
    with (
        leaselock.Client(empty.url, prefix=prefix) as client,
        leaselock.Client(f"{empty.url}?prefix={prefix}") as other,
    ):
        leases = [client.lock(name, lease=LONG).try_acquire() for name in NAMES]
        assert None not in leases
        for name, lease in zip(NAMES, leases, strict=True):
            assert lease is not None
            assert other.lock(name).try_acquire() is None
            lease.release()
            found = other.lock(name, lease=LONG).acquire(timeout=0.0)
            assert found.token > lease.token


def test_a_live_master_that_sentinels_no_longer_name_is_abandoned(tmp_path: Path) -> None:
    """The old server remains a master, separated from the sentinels (hazards D9, G12)."""
    with Redis() as old, Redis() as new:
        sentinel = Sentinel(tmp_path / "sentinel", old, ())
        assert sentinel.process.ready(sentinel.hastened)
        try:
            url = f"redis+sentinel://{HOST}:{sentinel.port}/{NAME}"
            with leaselock.Client(url) as client, leaselock.Client(url) as other:
                lease = client.lock("a", lease=1.0).acquire()
                assert lease is not None
                sentinel.ask("SENTINEL", "REMOVE", NAME)
                sentinel.ask("SENTINEL", "MONITOR", NAME, HOST, new.port, 1)
                eventually(lambda: lease.lost)
                assert old.ask("ROLE")[0] == "master"
                successor = other.lock("a").acquire(timeout=TIMEOUT)
                assert successor.token > lease.token
                assert new.ask("EXISTS", "lock:a") == 1
        finally:
            sentinel.process.kill()


def test_a_replica_promoted_at_the_end_of_a_lease_grants_once(
    pool: ThreadPoolExecutor,
) -> None:
    """A replica keeps an expired key until it becomes the master (hazard G16)."""
    with Redis() as master, Redis(replica_of=master) as replica:
        replica.caught_up()
        with leaselock.Client(master.url) as client:
            lease = client.lock("a", lease=1.5, renew=False).acquire()
            assert lease is not None
            eventually(lambda: replica.ask("PTTL", "lock:a") > 0)
            master.pause()
            eventually(lambda: replica.ask("PTTL", "lock:a") < 50)
            replica.ask("REPLICAOF", "NO", "ONE")
            tokens = [*pool.map(lambda _: taken(replica.url), range(3))]
            assert sorted(set(tokens)) == sorted(tokens)
            assert min(tokens) > lease.token
            master.cont()


def taken(url: str) -> int:
    """Acquire and release the lock; return its token."""
    with leaselock.Client(url) as client, client.lock("a", timeout=TIMEOUT) as lease:
        return lease.token


class Closing(Hostile):
    """A server that closes every connection at once, and records the time."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def converse(self, wire: socket.socket, stream: BinaryIO) -> None:
        """Record the time, and send nothing."""
        self.times.append(time.monotonic())


def test_clients_that_fail_together_do_not_retry_together() -> None:
    """Pauses grow and are random, so retries are few and spread out (hazard D10)."""
    server, clients = Closing(), 30

    def ask(gate: threading.Barrier) -> None:
        with leaselock.Client(server.url, op_timeout=1.0) as client:
            gate.wait()
            with pytest.raises(leaselock.StoreError):
                client.lock("a").acquire(timeout=1.0)

    with ThreadPoolExecutor(clients) as many:
        gate = threading.Barrier(clients)
        began = time.monotonic()
        for done in [many.submit(ask, gate) for _ in range(clients)]:
            done.result(TIMEOUT)
    assert clients < len(server.times) < 40 * clients
    late = sorted(when - began for when in server.times)[-2 * clients :]
    together = max(sum(one <= other < one + 0.02 for other in late) for one in late)
    assert together < clients
