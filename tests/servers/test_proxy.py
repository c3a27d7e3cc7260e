"""The proxy does what it says: every fault, seen from both ends."""

from __future__ import annotations

import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest
from testkit.proxy import Proxy
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from testkit.servers.resp import Wire, packed

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def proxy(server: Redis) -> Iterator[Proxy]:
    server.ask("FLUSHALL")
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def wire(proxy: Proxy) -> Iterator[Wire]:
    with Wire(proxy.port) as wire:
        wire.socket.settimeout(0.3)
        yield wire


def test_it_passes_on(wire: Wire) -> None:
    assert wire.ask("SET", "a", "x" * 300_000) == "OK"
    assert wire.ask("GET", "a") == "x" * 300_000


@pytest.mark.parametrize(("action", "arrives"), [("lose_request", False), ("lose_reply", True)])
def test_a_loss(action: str, arrives: bool, server: Redis, proxy: Proxy, wire: Wire) -> None:
    fault = proxy.plan(action, b"INCR", nth=2)
    assert wire.ask("INCR", "n") == 1
    with pytest.raises(TimeoutError):
        wire.ask("INCR", "n")
    fault.wait()
    if arrives:
        eventually(lambda: server.ask("GET", "n") == "2")
    with Wire(proxy.port) as other:
        assert other.ask("INCR", "n") == 2 + arrives


@pytest.mark.parametrize(("action", "arrives"), [("cut", False), ("cut_reply", True)])
def test_a_cut(action: str, arrives: bool, server: Redis, proxy: Proxy, wire: Wire) -> None:
    fault = proxy.plan(action, b"INCR")
    with pytest.raises(ConnectionError):
        wire.ask("INCR", "n")
    fault.wait()
    assert server.ask("GET", "n") == ("1" if arrives else None)


def test_a_request_that_is_held_arrives_after_its_asker_is_gone(
    server: Redis, proxy: Proxy, wire: Wire
) -> None:
    fault = proxy.hold(b"INCR")
    wire.socket.sendall(packed("INCR", "n"))
    fault.wait()
    wire.close()
    assert server.ask("INCR", "n") == 1
    fault.pass_on()
    eventually(lambda: server.ask("GET", "n") == "2")


def test_a_reply_that_is_held_arrives_late(server: Redis, proxy: Proxy, wire: Wire) -> None:
    fault = proxy.hold_reply(b"INCR")
    with pytest.raises(TimeoutError):
        wire.ask("INCR", "n")
    assert server.ask("GET", "n") == "1"
    fault.pass_on()
    assert b"".join(iter(lambda: wire.socket.recv(1), b"\n")) == b":1\r"


def test_a_partition_heals(proxy: Proxy, wire: Wire) -> None:
    wire.ask("PING")
    proxy.silence()
    with Wire(proxy.port) as other:
        other.socket.settimeout(0.1)
        for silent in (wire, other):
            with pytest.raises(TimeoutError):
                silent.ask("PING")
    proxy.heal()
    with Wire(proxy.port) as third:
        assert third.ask("PING") == "PONG"
    proxy.refuse()
    with pytest.raises(ConnectionError), Wire(proxy.port) as fourth:
        fourth.ask("PING")


def test_no_thread_stays(server: Redis) -> None:
    before = threading.active_count()
    with Proxy(server.port) as proxy, Wire(proxy.port) as wire:
        wire.ask("PING")
        fault = proxy.hold(b"INCR")
        wire.socket.sendall(packed("INCR", "stays"))
        fault.wait()
    # Fewer, if the threads of an earlier test were just ending.
    eventually(lambda: threading.active_count() <= before)


def test_a_client_that_is_reset_is_gone_for_the_server(server: Redis, proxy: Proxy) -> None:
    """As one that is killed before it has read all that was sent to it."""
    wire = Wire(proxy.port)
    assert wire.ask("CLIENT", "SETNAME", "victim") == "OK"
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()
    eventually(lambda: "name=victim" not in server.ask("CLIENT", "LIST"))


def test_requests_are_counted_and_a_plan_can_be_withdrawn(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.lose_reply(b"PING", nth=2)
    assert wire.ask("PING") == "PONG"
    assert proxy.requests == 1
    proxy.withdraw(fault)
    assert wire.ask("PING") == "PONG"
    assert proxy.requests == 2
    assert not fault.injected.is_set()


class Delayed:
    """A mutex that lets one thread in late: when *passed* is set, or after a while."""

    def __init__(self, mutex: threading.Lock, late: threading.Thread) -> None:
        self.mutex = mutex
        self.late = late
        self.passed = threading.Event()

    def __enter__(self) -> None:
        if threading.current_thread() is self.late:
            self.passed.wait(0.3)
        self.mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self.mutex.release()


def test_a_connection_is_known_before_anything_passes(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a partition would miss a client that has already had an answer."""
    mutex = Delayed(proxy.mutex, proxy.thread)
    monkeypatch.setattr(proxy, "mutex", mutex)
    with Wire(proxy.port) as wire:
        assert wire.ask("PING") == "PONG"
        known = len(proxy.connections)
        mutex.passed.set()
    assert known == 1
