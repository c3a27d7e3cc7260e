"""Connections in unusual states: shared, refused, silent, forked, moved to another server."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testkit.conformance.waiting import repeated_signals
from testkit.servers.process import HOST, eventually
from testkit.servers.redis import Redis
from testkit.servers.rights import additional, user
from testkit.servers.sentinel import NAME, Sentinel

import leaselock
from leaselock._backends.redis.blocking import KERNEL_LIMIT, BlockingConnection, timeval
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.codec import packed
from leaselock._backends.redis.messages import Connect, Listen, Send
from leaselock._backends.redis.multiplexed import MultiplexedConnection
from leaselock._backends.redis.store import RedisStore
from leaselock._core.contract.effects import Signal
from leaselock._drivers.system_env import now
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

LONG, TIMEOUT = 60.0, 20.0
# Opening a connection takes fewer iterations of the loop.
LAST = 30
LEGACY = additional("the [legacy formats](redis-formats.md)")
USERS = (
    "user default on nopass ~* &* +@all",
    "user stays on >pw ~* &* +@all -unsubscribe",
    user("unscripted", "pw", "~*", more=(*LEGACY, "-@scripting")),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis(acl=USERS) as server:
        yield server


@pytest.fixture
def mute() -> Iterator[str]:
    """The URL of a server that accepts connections and never replies."""
    with socket.create_server((HOST, 0)) as listener:
        yield f"redis://{HOST}:{listener.getsockname()[1]}"


@pytest.mark.timing
@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
def test_a_lease_survives_the_overwritten_key_of_another_lock(server: Redis) -> None:
    """An overwritten key loses its own lock only, in each protocol."""
    for protocol, other in (("hash", "SET"), ("string", "RPUSH"), ("setnx-expire", "RPUSH")):
        with leaselock.Client(server.url, op_timeout=0.5) as client:
            spoilt = client.lock("a", lease=4.0, protocol=protocol).try_acquire()
            sound = client.lock("b", lease=3.0, protocol=protocol).try_acquire()
            assert spoilt is not None
            assert sound is not None
            server.ask("DEL", "lock:a")
            server.ask(other, "lock:a", "mine")
            eventually(lambda spoilt=spoilt: spoilt.lost)  # type: ignore[misc]
            assert not sound.lost
            before = sound.remaining
            eventually(lambda sound=sound, before=before: sound.remaining > before)  # type: ignore[misc]
            sound.release()
        server.ask("FLUSHALL")


def test_a_request_that_shares_a_connection_attempt_keeps_its_own_timeout(mute: str) -> None:
    async def scenario() -> None:
        client = leaselock.AsyncClient(mute, op_timeout=LONG)
        patient = asyncio.create_task(client.lock("a").acquire())
        await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT):
            with pytest.raises(StoreError):
                await client.lock("b").acquire(timeout=0)
        assert not patient.done()
        patient.cancel()
        await asyncio.wait([patient])

    def run() -> None:
        asyncio.run(scenario())
        # The client is in a cycle, which Python 3.12 collects later.
        gc.collect()

    # To close it in order would take as long as its server may take to answer.
    with pytest.warns(ResourceWarning, match="never closed"):
        run()


@pytest.mark.timing
def test_closing_a_client_cancels_no_connecting_task(mute: str) -> None:
    async def scenario() -> None:
        client = leaselock.AsyncClient(mute, op_timeout=LONG)
        looking = asyncio.create_task(client.lock("a").holder())
        for _ in range(5):
            await asyncio.sleep(0)
        await client.close()
        with pytest.raises((StoreError, leaselock.ClientClosed)):
            await looking

    asyncio.run(scenario())


def test_all_waiters_follow_the_first_that_finds_the_lock_on_another_server(tmp_path: Path) -> None:
    """The master that sentinels no longer name stays alive, with all subscriptions."""
    count = 8

    async def taken(client: leaselock.AsyncClient) -> None:
        async with client.lock("a", lease=LONG):
            pass

    async def scenario(url: str, move: Any) -> None:
        other = leaselock.AsyncClient(url)
        async with other, leaselock.AsyncClient(url) as client:
            assert await other.lock("a", lease=LONG).acquire() is not None
            tasks = [asyncio.create_task(taken(client)) for _ in range(count)]
            while len(await other.lock("a").waiters()) < count:
                pass
            move()
            # The first task polls after 3 s. Without the others following, each takes another 3 s.
            async with asyncio.timeout(2.0 * count):
                await asyncio.gather(*tasks)

    with Redis() as old, Redis() as new:
        sentinel = Sentinel(tmp_path / "sentinel", old, ())

        def move() -> None:
            sentinel.ask("SENTINEL", "REMOVE", NAME)
            sentinel.ask("SENTINEL", "MONITOR", NAME, HOST, new.port, 1)

        try:
            assert sentinel.process.ready(sentinel.hastened)
            asyncio.run(scenario(f"redis+sentinel://{HOST}:{sentinel.port}/{NAME}", move))
        finally:
            sentinel.process.kill()


def test_a_user_who_may_not_unsubscribe_may_subscribe_again(server: Redis) -> None:
    """The refusal of one command must not be taken for a refusal of another."""
    settings = settings_of(f"redis://stays:pw@{HOST}:{server.port}")

    async def scenario() -> None:
        connection = MultiplexedConnection(settings, settings.addresses[0], now, nothing)
        await connection.call(Connect(), now() + TIMEOUT)
        for verb in ("SUBSCRIBE", "UNSUBSCRIBE", "SUBSCRIBE"):
            connection.tell(packed(((verb, "channel"),)), ((verb, "channel"),))
        (reply,) = await connection.call(question("EXISTS", "nothing"), now() + TIMEOUT)
        assert reply == 0
        assert not connection.refused
        connection.close()
        await asyncio.sleep(0)

    asyncio.run(scenario())


def nothing(*_: object) -> None:
    """Ignore changes of the connection."""


def question(*command: str) -> Send:
    """Return a request of one command."""
    return Send(packed((command,)), 1, ())


def connected(settings: Any) -> BlockingConnection:
    """Connect to the server."""
    made = BlockingConnection(settings, settings.addresses[0], now, nothing)
    made.call(Connect(), now() + TIMEOUT)
    return made


def test_an_idle_connection_with_tls_is_reused() -> None:
    with Redis(tls=True) as server:
        settings = settings_of(server.url)
        connection = connected(settings)
        assert connection.call(question("EXISTS", "a"), now() + TIMEOUT) == [0]
        connection.last_used -= LONG
        assert connection.is_usable()
        assert connection.call(question("EXISTS", "a"), now() + TIMEOUT) == [0]
        server.kill()
        connection.last_used -= LONG
        eventually(lambda: not connection.is_usable())
        connection.close()


class Leaving(list[Any]):
    """The callbacks of a signal that is set by another thread before one is taken out."""

    def __init__(self, signal: Signal) -> None:
        super().__init__()
        self.signal = signal

    def remove(self, wake: object) -> None:
        if not self.signal.is_set:
            self.signal.set()
        super().remove(wake)


def test_a_wait_may_end_when_it_is_interrupted(server: Redis) -> None:
    connection = connected(settings_of(server.url))
    signal = Signal()
    signal.wakers = Leaving(signal)
    connection.call(Listen(signal), now())
    assert signal.is_set
    connection.close()


def test_a_forked_child_has_no_connection_that_was_in_use(server: Redis) -> None:
    client = leaselock.Client(server.url, op_timeout=TIMEOUT)
    assert not client.lock("a").locked()
    (store,) = client._driver.parts
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


def test_a_cancelled_connection_is_not_left_open(server: Redis) -> None:
    """Cancelled at any iteration of the loop: asyncio 3.11 may drop the cancellation."""
    settings = settings_of(server.url)

    async def cancel_after(iterations: int) -> None:
        connection = MultiplexedConnection(settings, settings.addresses[0], now, nothing)
        task = asyncio.ensure_future(connection.call(Connect(), now() + TIMEOUT))
        for _ in range(iterations):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if connection.connecting is not None:
            await asyncio.wait([connection.connecting])
        assert connection.open is not task.cancelled()
        connection.close()

    for iterations in range(LAST):
        asyncio.run(cancel_after(iterations))
        assert connections(server.port) == 0


def connections(port: int) -> int:
    """Return the number of this process's descriptors that are connections to that local port."""
    words = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    found = {f"socket:[{w[9]}]" for w in words if int(w[2].rpartition(":")[2], 16) == port}
    held = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(name) in found for name in held)


@pytest.mark.timing
@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
def test_without_permission_to_run_scripts_nothing_is_deleted(server: Redis) -> None:
    """A refused request changes nothing."""
    url = f"redis://unscripted:pw@{HOST}:{server.port}?protocol=setnx-expire"
    with leaselock.Client(url) as client:
        lease = client.lock("a", lease=LONG).acquire(timeout=0)
        with pytest.raises(leaselock.LeaseLost) as raised:
            lease.release()
        assert isinstance(raised.value.__cause__, NotApplied)
        assert "evalsha" in str(raised.value.__cause__)
        assert server.ask("EXISTS", "lock:a") == 1
    server.ask("FLUSHALL")


def test_a_reply_in_small_pieces_has_a_deadline(server: Redis) -> None:
    """The deadline holds although each piece arrives soon after the last."""
    settings, over = settings_of(server.url), threading.Event()
    connection = connected(settings)
    connection.sock.close()
    connection.sock, other = socket.socketpair()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(KERNEL_LIMIT))

    def trickle() -> None:
        other.sendall(b"$100000\r\n")
        while not over.wait(0.003):
            other.sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    end = threading.Timer(TIMEOUT, over.set)
    end.start()
    began = now()
    with pytest.raises(leaselock.OutcomeUnknown, match="did not answer in time"):
        connection.call(question("GET", "a"), now() + 0.3)
    assert now() - began < TIMEOUT / 2
    end.cancel()
    over.set()
    thread.join()
    connection.close()
    other.close()
    with pytest.raises(leaselock.NotApplied, match="closed"):
        connection.call(question("GET", "a"), now() + 0.3)


@pytest.mark.timing
def test_signals_do_not_prolong_a_request_or_a_wait(server: Redis) -> None:
    """The kernel restarts a timeout after each signal."""
    with (
        repeated_signals(),
        leaselock.Client(server.url) as other,
        leaselock.Client(server.url, op_timeout=1.0) as client,
    ):
        taken = other.lock("a")
        taken.acquire(timeout=0.0)
        began = now()
        assert client.lock("a").try_acquire(timeout=1.0) is None
        assert now() - began < TIMEOUT / 4
        server.pause()
        try:
            began = now()
            with pytest.raises(leaselock.StoreError):
                client.lock("b").acquire(timeout=0.0)
            assert now() - began < TIMEOUT / 4
        finally:
            server.cont()
