"""What a server of Redis may be, and what others may do to it: the lock is had, or the reason told.

Law: who waits is not kept for ever by what somebody else does to a connection, a channel or a key.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from redis import Redis as RedisPy
from tests.chaos.test_redis_restart import COLOURS, LONG, PATIENCE, waiting
from tests.fuzz.hostile import Hostile
from tests.servers.process import HOST, eventually
from tests.servers.redis import Redis
from tests.servers.sentinel import NAME, Sentinel

import leaselock
from leaselock.backends.redis import scripted_lock
from leaselock.backends.redis.keys import keys_of, release_channel, tombstone, wake_channel

if TYPE_CHECKING:
    import socket
    from pathlib import Path
    from typing import BinaryIO

MUCH = "x" * 300_000


@pytest.fixture
def empty(server: Redis) -> Redis:
    server.ask("FLUSHALL")
    return server


def listeners(server: Redis) -> set[str]:
    """The numbers of the connections that listen."""
    told = server.ask("CLIENT", "LIST", "TYPE", "pubsub")
    return {line.split()[0] for line in told.splitlines()}


@pytest.mark.parametrize("colour", COLOURS)
def test_who_listens_and_is_cut_off_for_too_much_is_told_all_the_same(
    colour: str, pool: ThreadPoolExecutor
) -> None:
    """A stranger sends more to the channels than the server keeps for a listener (hazard E9)."""
    limit = ("client-output-buffer-limit", "pubsub 64kb 64kb 1")
    with Redis(*limit) as own, leaselock.Client(own.url) as client:
        lock = client.lock("a", lease=LONG)
        lease = lock.acquire()
        assert lease is not None
        waiter = waiting(pool, colour, lock, own.url, LONG)
        eventually(lambda: own.ask("PUBSUB", "CHANNELS"))
        before = listeners(own)
        for channel in own.ask("PUBSUB", "CHANNELS"):
            own.ask("PUBLISH", channel, MUCH)
        eventually(lambda: not before & listeners(own))
        lease.release()
        assert waiter.result(PATIENCE) > lease.token


@pytest.mark.parametrize("colour", COLOURS)
def test_a_release_that_is_told_in_another_kind_of_channel_is_found(
    colour: str, empty: Redis, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another version of Redisson would, in Redisson's own format (hazard E10)."""
    monkeypatch.setattr(scripted_lock, "RECHECK_MS", 500)
    empty.ask("HSET", "a", "00000000-0000-0000-0000-000000000001:1", 1)
    empty.ask("PEXPIRE", "a", 60_000)
    with leaselock.Client(empty.url) as client:
        waiter = waiting(pool, colour, client.lock("a"), empty.url, LONG)
        empty.ask("DEL", "a")
        empty.ask("SPUBLISH", release_channel("a"), "0")
        assert waiter.result(PATIENCE) > 0


def test_a_client_that_decodes_replies_locks_as_well(empty: Redis) -> None:
    """Whatever the user's own client is set to (hazard G14)."""
    theirs = RedisPy(host=HOST, port=empty.port, decode_responses=True)
    with leaselock.Client(theirs) as client, leaselock.Client(empty.url) as other:
        with client.lock("ä", lease=LONG) as lease:
            assert other.lock("ä").acquire(timeout=0.0) is None
            lease.extend(LONG)
            holder = other.lock("ä").holder()
            assert holder is not None
            assert holder.token == lease.token
        assert not other.lock("ä").locked()
    theirs.close()


# What Redisson's, redis-py's and our own keys for the lock "a" are called, and keys of those.
ODD = [
    *("a", "{a}", "{{a}}", "a}", "{a", "redisson_lock", "leaselock:", "leaselock:lock:{a}"),
    *keys_of("a", False),
    *keys_of("{a}", False),
    *(tombstone("a", "0:1"), release_channel("a"), wake_channel("a"), "redisson_unlock_latch:{a}"),
]
NAMES = list(dict.fromkeys([*ODD, *(key for name in ODD for key in keys_of(name, False))]))


def test_no_key_of_a_lock_is_a_key_of_another(empty: Redis) -> None:
    """Names that look like keys beside other locks are locks of their own (hazard L3)."""
    keys = [key for name in NAMES for key in keys_of(name, False)]
    # Redisson gives "a" and "{a}" one counter, which only ever grows.
    beside = {key for key in keys if not key.startswith("redisson_lock_token:")}
    assert len(beside) == 3 * len(NAMES)
    with leaselock.Client(empty.url) as client, leaselock.Client(empty.url) as other:
        leases = [client.lock(name, lease=LONG).acquire(timeout=0.0) for name in NAMES]
        assert None not in leases
        for name, lease in zip(NAMES, leases, strict=True):
            assert lease is not None
            assert other.lock(name).acquire(timeout=0.0) is None
            lease.release()
            found = other.lock(name, lease=LONG).acquire(timeout=0.0)
            assert found is not None
            assert found.token > lease.token


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
def test_a_transaction_that_others_disturb_all_the_time_ends(empty: Redis) -> None:
    """An older format gives back by WATCH and MULTI, and the key changes meanwhile (hazard G18)."""
    over = threading.Event()

    def wake_all() -> None:
        with empty.wire() as wire:
            while not over.is_set():
                wire.ask("PEXPIRE", "a", 60_000)

    with leaselock.Client(empty.url, op_timeout=0.5) as client:
        lock = client.lock("a", lease=LONG, protocol="setnx-expire")
        lease = lock.acquire()
        assert lease is not None
        threads = [threading.Thread(target=wake_all) for _ in range(3)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        try:
            lease.release()
        except leaselock.LeaseLost:
            assert time.monotonic() - began < PATIENCE
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert lock.acquire(timeout=PATIENCE) is not None


def test_a_master_that_sentinels_no_longer_name_is_left_though_it_lives(tmp_path: Path) -> None:
    """It goes on as a master, cut off from the sentinels (hazards D9, G12)."""
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
                heir = other.lock("a").acquire(timeout=PATIENCE)
                assert heir is not None
                assert heir.token > lease.token
                assert new.ask("EXISTS", "a") == 1
        finally:
            sentinel.process.kill()


def test_a_replica_that_is_promoted_as_the_lease_ends_hands_on_once(
    pool: ThreadPoolExecutor,
) -> None:
    """It has the key still, and deletes none by itself until it is the master (hazard G16)."""
    with Redis() as master, Redis(replica_of=master) as replica:
        replica.caught_up()
        with leaselock.Client(master.url) as client:
            lease = client.lock("a", lease=1.5, renew=False).acquire()
            assert lease is not None
            eventually(lambda: replica.ask("PTTL", "a") > 0)
            master.pause()
            eventually(lambda: replica.ask("PTTL", "a") < 50)
            replica.ask("REPLICAOF", "NO", "ONE")
            tokens = [*pool.map(lambda _: taken(replica.url), range(3))]
            assert sorted(set(tokens)) == sorted(tokens)
            assert min(tokens) > lease.token
            master.cont()


def taken(url: str) -> int:
    """The lock, taken and given back; its token."""
    with leaselock.Client(url) as client, client.lock("a", timeout=PATIENCE) as lease:
        return lease.token


class Closing(Hostile):
    """It takes every connection and closes it, and notes when."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def converse(self, wire: socket.socket, stream: BinaryIO) -> None:
        """Say nothing."""
        self.times.append(time.monotonic())


def test_a_crowd_that_fails_together_does_not_come_back_together() -> None:
    """Pauses grow and are random, so tries are few, and each at another time (hazard D10)."""
    server, crowd = Closing(), 30

    def ask(gate: threading.Barrier) -> None:
        with leaselock.Client(server.url, op_timeout=1.0) as client:
            gate.wait()
            with pytest.raises(leaselock.StoreError):
                client.lock("a").acquire(timeout=1.0)

    with ThreadPoolExecutor(crowd) as many:
        gate = threading.Barrier(crowd)
        began = time.monotonic()
        for done in [many.submit(ask, gate) for _ in range(crowd)]:
            done.result(PATIENCE)
    assert crowd < len(server.times) < 40 * crowd
    late = sorted(when - began for when in server.times)[-2 * crowd :]
    together = max(sum(one <= other < one + 0.02 for other in late) for one in late)
    assert together < crowd
