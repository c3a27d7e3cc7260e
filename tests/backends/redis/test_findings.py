"""What `doctor` finds on real servers: who may use them, what they can do, for how many they have
room.

A server that lacks something is played by users who may not use it, and by a server whose
configuration has renamed a command.
"""

from __future__ import annotations

import asyncio
import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from testkit.servers.rights import channels, commands, keys

import leaselock
from leaselock._backends.redis.keys import index_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testkit.servers.cluster import Cluster

KEYS, CHANNELS, COMMANDS = " ".join(keys()), " ".join(channels()), " ".join(commands())
SMALL = f"on >pw resetchannels {KEYS} {CHANNELS} -@all {COMMANDS}"
USERS = [
    "user default on nopass ~* &* +@all",
    f"user locks {SMALL}",
    f"user watcher {SMALL} +client|tracking +client|caching",
    f"user mute {SMALL} -publish",
    f"user deaf {SMALL} -pubsub|numsub",
    f"user unscripted {SMALL} -@scripting",
]


def findings(url: str) -> list[tuple[str, str]]:
    """Return the level and the text of each finding."""
    with leaselock.Client(url) as client:
        return [(finding.level, finding.what) for finding in client.doctor()]


def found(url: str, words: str) -> tuple[str, str]:
    """Return the only finding with these words."""
    (finding,) = (finding for finding in findings(url) if words in finding[1])
    return finding


@pytest.fixture(scope="module")
def guarded() -> Iterator[Redis]:
    with Redis(acl=USERS) as server:
        yield server


def url_of(server: Redis, user: str) -> str:
    return f"redis://{user}:pw@127.0.0.1:{server.port}/0"


def test_redis_can_do_everything(server: Redis) -> None:
    told = findings(server.url)
    assert ("ok", "scripts can do everything that locks need") in told
    assert ("ok", "changes of a lock are pushed to its watchers") in told
    assert not server.ask("EXISTS", "leaselock:doctor")


def test_a_cluster_can_do_everything(cluster: Cluster) -> None:
    """By messages of the slot, and on a server that has the slot of what is tried."""
    with leaselock.Client(cluster.url.replace("worker:pw@", "")) as client:
        told = [(finding.level, finding.what) for finding in client.doctor()]
    assert ("ok", "scripts can do everything that locks need") in told
    assert ("ok", "changes of a lock are pushed to its watchers") in told


def test_doctor_leaves_the_watchers_of_its_client_alone(server: Redis) -> None:
    """Tasks share a connection, which is where the tracking of keys is tried."""

    async def main() -> None:
        async with leaselock.AsyncClient(server.url) as client:
            watching = client.lock("a").watch()
            assert (await anext(watching)).holder is None
            await client.doctor()
            assert server.info("clients")["tracking_clients"] == "1"
            async with client.lock("a"):
                assert (await anext(watching)).holder is not None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("user", "level", "words"),
    [
        ("watcher", "ok", "scripts can do everything"),
        ("watcher", "ok", "changes of a lock are pushed"),
        ("locks", "warn", "changes of a lock are not pushed (CLIENT TRACKING)"),
        ("mute", "warn", "scripts cannot PUBLISH, so waiters are not notified"),
        ("deaf", "fail", "scripts cannot ask PUBSUB for subscribers, so waiters cannot be listed"),
        ("unscripted", "fail", "what locks need could not be tried"),
    ],
)
def test_what_a_user_may_not_use_is_found(
    guarded: Redis, user: str, level: str, words: str
) -> None:
    assert found(url_of(guarded, user), words)[0] == level


def test_a_server_without_wait_cannot_confirm_grants(guarded: Redis) -> None:
    level, what = found(f"{url_of(guarded, 'locks')}?replicas=1", "WAIT")
    assert (level, "so ?replicas=1 lets no lock be granted" in what) == ("fail", True)
    assert not [what for _, what in findings(f"{guarded.url}?replicas=1") if "WAIT" in what]


def test_what_is_said_of_a_user_without_pubsub_is_true(guarded: Redis) -> None:
    with (
        leaselock.Client(guarded.url) as others,
        leaselock.Client(url_of(guarded, "deaf")) as client,
        ThreadPoolExecutor() as threads,
    ):
        catalog = others.rwlock("orders:5")
        reading = catalog.read.acquire()
        writer = threads.submit(lambda: catalog.write.acquire(timeout=60.0).release())
        eventually(catalog.write.waiters)
        for ask in (client.lock("orders:5").waiters, client.rwlock("orders:5").read.try_acquire):
            with pytest.raises(leaselock.StoreError) as refused:
                ask()
            assert refused.value.reason == "denied"
        reading.release()
        writer.result()


def test_a_server_without_resp3_is_found(tmp_path: Path) -> None:
    (tmp_path / "renamed.conf").write_text('rename-command HELLO ""\n')
    # The client of the test kit does not use HELLO.
    with Redis("include", str(tmp_path / "renamed.conf")) as server:
        ((level, what),) = findings(server.url)
    assert level == "fail"
    assert "leaselock needs RESP3 (HELLO 3)" in what


def test_a_server_that_lets_in_clients_without_a_login_is_found(guarded: Redis) -> None:
    """Although the client of the URL has one. Over loopback that is only told."""
    assert found(url_of(guarded, "locks"), "login")[0] == "ok"
    assert "no login is needed" in found(url_of(guarded, "locks"), "login")[1]
    with Redis(password="secret") as server:
        level, what = found(server.url, "login")
        assert (level, what.endswith("clients without a login are refused")) == ("ok", True)
        assert "secret" not in str(findings(server.url))


def test_a_task_tries_without_a_login_too(guarded: Redis) -> None:
    async def told(url: str) -> list[str]:
        async with leaselock.AsyncClient(url) as client:
            return [finding.what for finding in await client.doctor() if "login" in finding.what]

    with Redis(password="secret") as server:
        (refused,) = asyncio.run(told(server.url))
    assert refused.endswith("clients without a login are refused")
    (let_in,) = asyncio.run(told(url_of(guarded, "locks")))
    assert "no login is needed" in let_in


@pytest.mark.parametrize(
    ("option", "level", "problem"),
    [
        ("&ssl_cert_reqs=none", "warn", "ssl_cert_reqs=none"),
        ("&ssl_check_hostname=false", "warn", "ssl_check_hostname=false"),
        ("&ssl_check_hostname=true", "ok", "the server's certificate is verified"),
    ],
)
def test_tls_that_is_not_verified_is_found(
    encrypted: Redis, option: str, level: str, problem: str
) -> None:
    said, what = found(f"{encrypted.url}{option}", "the connections: TLS")
    assert (said, what.endswith(problem)) == (level, True)


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Redis]:
    with Redis(tls=True) as server:
        yield server


def test_replicas_of_a_master_that_goes_on_without_them_are_found() -> None:
    with Redis() as master, Redis(replica_of=master) as replica:
        replica.caught_up()
        level, what = found(master.url, "connected replicas: 1;")
        assert (level, what.endswith("(min-replicas-to-write 0)")) == ("warn", True)
        eventually(lambda: found(f"{master.url}?replicas=2", "?replicas=2")[0] == "fail")
        master.ask("CONFIG", "SET", "min-replicas-to-write", "1")
        assert found(master.url, "connected replicas: 1;")[0] == "ok"


def test_room_for_few_clients_and_many_keys_are_found() -> None:
    with Redis("maxclients", "20") as server:
        # One connection is that of the client.
        level, what = found(server.url, "maxclients is 20")
        assert (level, "3 clients of 5 connections each fit" in what) == ("warn", True)
        assert not [what for _, what in findings(server.url) if "ls --all" in what]
        server.ask("DEBUG", "POPULATE", "1000000", "other", "1")
        level, what = found(server.url, "ls --all and gc look at all of them")
        assert (level, f"{server.ask('DBSIZE')} keys" in what) == ("warn", True)


def test_a_server_without_memory_is_found() -> None:
    with Redis() as server:
        server.ask("CONFIG", "SET", "maxmemory", "1")
        level, what = found(server.url, "takes no writes now")
        assert (level, "OOM" in what) == ("fail", True)


def test_an_index_of_another_type_is_found_and_stops_nothing() -> None:
    key = "leaselock:active::it's "
    with Redis() as server, leaselock.Client(f"{server.url}?prefix=it's%20") as client:
        assert not [each for each in client.doctor() if "index" in each.what]
        before = client.lock("before").acquire()
        server.ask("SET", key, "no index")
        held = client.lock("held").acquire()
        for _ in range(200):
            client.lock("short").acquire().release()
        client.gc()
        assert [each.name for each in client.locks()] == ["before", "held"]
        (finding,) = (each for each in client.doctor() if "index" in each.what)
        assert finding.level == "fail"
        assert f"{key!r} holds a string" in finding.what
        command, _, _ = finding.advice.partition(", ")
        assert shlex.split(command) == ["redis-cli", "DEL", key]
        server.ask("DEL", key)
        client.gc()
        assert server.ask("ZCARD", key) == 2
        assert not [each for each in client.doctor() if "index" in each.what]
        held.release()
        before.release()
        assert client.locks() == []


def test_an_index_of_another_type_is_found_in_its_slot(cluster: Cluster) -> None:
    slot = cluster.slot("lock:a")
    master, key = cluster.owner(slot), index_of(slot, "lock:")
    master.ask("DEL", key)
    master.ask("RPUSH", key, "no index")
    with leaselock.Client(cluster.url.replace("worker:pw@", "")) as client:
        with client.lock("a"):
            assert "a" in [each.name for each in client.locks()]
            found = [each for each in client.doctor() if "index" in each.what]
            assert [each.level for each in found] == ["fail"]
            assert f"{key!r} holds a list" in found[0].what
        master.ask("DEL", key)
        assert not [each for each in client.doctor() if "index" in each.what]
