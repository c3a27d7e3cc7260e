"""Connections at awkward moments: shared, refused, silent, forked, gone over to another server."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.process import HOST, eventually
from tests.servers.redis import Redis
from tests.servers.rights import beside, user
from tests.servers.sentinel import NAME, Sentinel

import leaselock
from leaselock.backends.redis.blocking import KERNEL_LIMIT, BlockingConnection, timeval
from leaselock.backends.redis.codec import packed
from leaselock.backends.redis.messages import Connect, Send
from leaselock.backends.redis.multiplexed import MultiplexedConnection
from leaselock.backends.redis.settings import settings_of
from leaselock.backends.redis.store import RedisStore
from leaselock.drivers.system_env import now
from leaselock.errors import NotApplied, StoreError
from leaselock.testing.conformance.waiting import repeated_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG, PATIENCE = 60.0, 20.0
FEW = [word for word in beside("the [legacy formats](redis-formats.md)") if word != "+watch"]
USERS = (
    "user default on nopass ~* &* +@all",
    "user stays on >pw ~* &* +@all -unsubscribe",
    user("unwatching", "pw", "~*", more=FEW),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis(acl=USERS) as server:
        yield server


@pytest.fixture
def mute() -> Iterator[str]:
    """The URL of a server that takes connections and never says a word."""
    with socket.create_server((HOST, 0)) as listener:
        yield f"redis://{HOST}:{listener.getsockname()[1]}"


@pytest.mark.timing
@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
def test_a_lease_goes_on_where_the_key_of_another_was_written_over(server: Redis) -> None:
    """A lock's key that holds something else is lost by itself, whatever the protocol."""
    for protocol, other in (("hash", "SET"), ("string", "RPUSH"), ("setnx-expire", "RPUSH")):
        with leaselock.Client(server.url, op_timeout=0.5) as client:
            spoilt = client.lock("a", lease=4.0, protocol=protocol).acquire(timeout=0)
            sound = client.lock("b", lease=3.0, protocol=protocol).acquire(timeout=0)
            assert spoilt is not None
            assert sound is not None
            server.ask("DEL", "a")
            server.ask(other, "a", "mine")
            eventually(lambda spoilt=spoilt: spoilt.lost)  # type: ignore[misc]
            assert not sound.lost
            before = sound.remaining
            eventually(lambda sound=sound, before=before: sound.remaining > before)  # type: ignore[misc]
            sound.release()
        server.ask("FLUSHALL")


def test_who_joins_others_that_connect_waits_no_longer_than_it_wanted(mute: str) -> None:
    async def story() -> None:
        client = leaselock.AsyncClient(mute, op_timeout=LONG)
        patient = asyncio.create_task(client.lock("a").acquire())
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StoreError):
                await client.lock("b").acquire(timeout=0)
        assert not patient.done()
        patient.cancel()
        await asyncio.wait([patient])

    asyncio.run(story())


@pytest.mark.timing
def test_a_client_that_closes_cancels_nobody_who_connects(mute: str) -> None:
    async def story() -> None:
        client = leaselock.AsyncClient(mute, op_timeout=LONG)
        looking = asyncio.create_task(client.lock("a").holder())
        for _ in range(5):
            await asyncio.sleep(0)
        await client.close()
        with pytest.raises((StoreError, leaselock.ClientClosed)):
            await looking

    asyncio.run(story())


def test_a_crowd_follows_the_first_who_finds_the_lock_elsewhere(tmp_path: Path) -> None:
    """The master that sentinels name no longer lives on, with everybody's subscription."""
    crowd = 8

    async def taken(client: leaselock.AsyncClient) -> None:
        async with client.lock("a", lease=LONG):
            pass

    async def story(url: str, move: Any) -> None:
        other = leaselock.AsyncClient(url)
        async with other, leaselock.AsyncClient(url) as client:
            assert await other.lock("a", lease=LONG).acquire() is not None
            tasks = [asyncio.create_task(taken(client)) for _ in range(crowd)]
            while len(await other.lock("a").waiters()) < crowd:
                pass
            move()
            # The first one looks after 3 s; one after the other, it would be 3 s for each.
            async with asyncio.timeout(2.0 * crowd):
                await asyncio.gather(*tasks)

    with Redis() as old, Redis() as new:
        sentinel = Sentinel(tmp_path / "sentinel", old, ())

        def move() -> None:
            sentinel.ask("SENTINEL", "REMOVE", NAME)
            sentinel.ask("SENTINEL", "MONITOR", NAME, HOST, new.port, 1)

        try:
            assert sentinel.process.ready(sentinel.hastened)
            asyncio.run(story(f"redis+sentinel://{HOST}:{sentinel.port}/{NAME}", move))
        finally:
            sentinel.process.kill()


def test_who_may_not_unsubscribe_may_listen_again(server: Redis) -> None:
    """The refusal of the one must not be taken for a refusal of the other."""
    settings = settings_of(f"redis://stays:pw@{HOST}:{server.port}")

    async def story() -> None:
        wire = MultiplexedConnection(settings, settings.addresses[0], now, nothing)
        await wire.call(Connect(), now() + PATIENCE)
        for verb in ("SUBSCRIBE", "UNSUBSCRIBE", "SUBSCRIBE"):
            wire.tell(packed(((verb, "channel"),)), ((verb, "channel"),))
        (reply,) = await wire.call(question("EXISTS", "nothing"), now() + PATIENCE)
        assert reply == 0
        assert not wire.refused
        wire.close()
        await asyncio.sleep(0)

    asyncio.run(story())


def nothing(*_: object) -> None:
    """Changes of the connection are of no interest."""


def question(*command: str) -> Send:
    """One command."""
    return Send(packed((command,)), 1, ())


def connected(settings: Any) -> BlockingConnection:
    """A connection to the server."""
    made = BlockingConnection(settings, settings.addresses[0], now, nothing)
    made.call(Connect(), now() + PATIENCE)
    return made


def test_a_line_with_tls_that_lay_idle_is_used_again() -> None:
    with Redis(tls=True) as server:
        settings = settings_of(server.url)
        line = connected(settings)
        assert line.call(question("EXISTS", "a"), now() + PATIENCE) == [0]
        line.last_used -= LONG
        assert line.is_usable()
        assert line.call(question("EXISTS", "a"), now() + PATIENCE) == [0]
        server.kill()
        line.last_used -= LONG
        eventually(lambda: not line.is_usable())
        line.close()


def test_a_forked_child_has_no_line_that_was_in_use(server: Redis) -> None:
    client = leaselock.Client(server.url, op_timeout=PATIENCE)
    assert not client.lock("a").locked()
    (store,) = client._driver.stores
    assert isinstance(store, RedisStore)
    thread = threading.Thread(target=client.lock("a").locked)
    server.pause()
    try:
        thread.start()
        eventually(lambda: not any(store.pool.idle.values()))
        assert connections(server.port) == 1
        child = os.fork()
        if not child:
            os._exit(connections(server.port))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        server.cont()
        thread.join()
        client.close()


def connections(port: int) -> int:
    """How many of this process's descriptors are connections to that port of this machine."""
    words = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    found = {f"socket:[{w[9]}]" for w in words if int(w[2].rpartition(":")[2], 16) == port}
    held = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(name) in found for name in held)


@pytest.mark.timing
@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
def test_without_the_right_to_watch_nothing_is_deleted_unwatched(server: Redis) -> None:
    """Refused means that nothing was applied."""
    url = f"redis://unwatching:pw@{HOST}:{server.port}?protocol=setnx-expire"
    with leaselock.Client(url) as client:
        lease = client.lock("a", lease=LONG).acquire(timeout=0)
        assert lease is not None
        with pytest.raises(leaselock.LeaseLost) as told:
            lease.release()
        assert isinstance(told.value.__cause__, NotApplied)
        assert "watch" in str(told.value.__cause__)
        assert server.ask("EXISTS", "a") == 1
    server.ask("FLUSHALL")


def test_an_answer_that_comes_in_small_pieces_has_a_deadline(server: Redis) -> None:
    """However soon each of them comes."""
    settings, over = settings_of(server.url), threading.Event()
    line = connected(settings)
    line.sock.close()
    line.sock, other = socket.socketpair()
    line.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(KERNEL_LIMIT))

    def trickle() -> None:
        other.sendall(b"$100000\r\n")
        while not over.wait(0.003):
            other.sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    end = threading.Timer(PATIENCE, over.set)
    end.start()
    began = now()
    with pytest.raises(leaselock.OutcomeUnknown, match="did not answer in time"):
        line.call(question("GET", "a"), now() + 0.3)
    assert now() - began < PATIENCE / 2
    end.cancel()
    over.set()
    thread.join()
    line.close()
    other.close()
    with pytest.raises(leaselock.NotApplied, match="closed"):
        line.call(question("GET", "a"), now() + 0.3)


@pytest.mark.timing
def test_signals_do_not_prolong_a_question_or_a_wait(server: Redis) -> None:
    """The kernel begins a time-out anew after each of them."""
    with (
        repeated_signals(),
        leaselock.Client(server.url) as other,
        leaselock.Client(server.url, op_timeout=1.0) as client,
    ):
        lease = other.lock("a").acquire(0.0)
        assert lease is not None
        began = now()
        assert client.lock("a").acquire(timeout=1.0) is None
        assert now() - began < PATIENCE / 4
        server.pause()
        try:
            began = now()
            with pytest.raises(leaselock.StoreError):
                client.lock("b").acquire(timeout=0.0)
            assert now() - began < PATIENCE / 4
        finally:
            server.cont()
