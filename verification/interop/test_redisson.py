"""Java and Python share locks: real Redisson and leaselock on one server, in both directions.

Invariants: each side respects the holds of the other, and a release wakes the other's waiters.
Java's answers carry its time: System.nanoTime() is the clock of time.monotonic_ns() here.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from verification.interop.conftest import WATCHDOG
from verification.interop.contest import (
    HOLD,
    TURNS,
    all_ready,
    check_exclusion,
    check_tokens,
    contender,
    counts,
    finished,
    longest_without,
    turns,
)
from verification.interop.java import Java

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testkit.servers.redis import Redis

pytestmark = pytest.mark.nightly

COLOURS = ["threads", "asyncio"]
TRIES = 5
MILLISECOND = 1_000_000
TIMEOUT = 30.0


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def key(name: str) -> str:
    """What Redisson calls the lock of that name."""
    return f"lock:{name}"


def take(url: str, name: str) -> int:
    """Take the lock and give it back; the time of the grant."""
    with leaselock.Client(url) as client, client.lock(name):
        return time.monotonic_ns()


async def take_async(url: str, name: str) -> int:
    async with leaselock.AsyncClient(url) as client, client.lock(name):
        return time.monotonic_ns()


def waiting(
    pool: ThreadPoolExecutor, colour: str, client: leaselock.Client, name: str
) -> Future[int]:
    """Start a waiter in Python, and return when it is in the queue."""
    lock = client.lock(name)
    before = len(lock.waiters())
    if colour == "threads":
        future = pool.submit(take, client.url, name)
    else:
        future = pool.submit(asyncio.run, take_async(client.url, name))
    eventually(lambda: len(lock.waiters()) > before or future.done())
    assert not future.done(), "it did not wait"
    return future


def java_waits(server: Redis, java: Java, owner: str, name: str) -> Future[str]:
    """A Java thread that waits for the lock now."""
    channel = f"redisson_lock__channel:{{{key(name)}}}"
    before = server.ask("PUBSUB", "NUMSUB", channel)[1]
    future = java.order(owner, "lock", key(name))
    eventually(lambda: server.ask("PUBSUB", "NUMSUB", channel)[1] > before or future.done())
    assert not future.done(), "it did not wait"
    return future


# --- waking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_java_gives_back_and_python_has_it_at_once(
    colour: str, java: Java, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    delays = []
    for number in range(TRIES):
        name = f"from-java-{colour}-{number}"
        java.obey("a", "lock", key(name))
        python = waiting(pool, colour, client, name)
        released = int(java.obey("a", "unlock", key(name)))
        delays.append(python.result(TIMEOUT) - released)
    assert statistics.median(delays) < 100 * MILLISECOND, delays


@pytest.mark.parametrize("colour", COLOURS)
def test_python_gives_back_and_java_has_it_at_once(
    colour: str, java: Java, server: Redis, pool: ThreadPoolExecutor
) -> None:
    delays = []
    for number in range(TRIES):
        name = f"from-python-{colour}-{number}"
        if colour == "threads":
            released, granted = handed_to_java(java, server, name)
        else:
            released, granted = asyncio.run(handed_to_java_async(java, server, name, pool))
        delays.append(granted - released)
        java.obey("a", "unlock", key(name))
    assert statistics.median(delays) < 100 * MILLISECOND, delays


def handed_to_java(java: Java, server: Redis, name: str) -> tuple[int, int]:
    with leaselock.Client(server.url) as client:
        with client.lock(name):
            waiter = java_waits(server, java, "a", name)
            released = time.monotonic_ns()
        return released, int(waiter.result(TIMEOUT))


async def handed_to_java_async(
    java: Java, server: Redis, name: str, pool: ThreadPoolExecutor
) -> tuple[int, int]:
    loop = asyncio.get_running_loop()
    async with leaselock.AsyncClient(server.url) as client:
        async with client.lock(name):
            waiter = await loop.run_in_executor(pool, java_waits, server, java, "a", name)
            released = time.monotonic_ns()
        answer: str = await asyncio.wrap_future(waiter)
        return released, int(answer)


@pytest.mark.parametrize("colour", COLOURS)
def test_java_ends_without_giving_back_and_python_has_it_when_its_time_is_over(
    colour: str, built: None, server: Redis, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    name = f"dead-java-{colour}"
    with Java([server.port], WATCHDOG) as doomed:
        doomed.wait()
        doomed.obey("a", "lock", key(name))
        python = waiting(pool, colour, client, name)
    ended = time.monotonic_ns()
    assert python.result(TIMEOUT) - ended < (WATCHDOG + 3.0) * 1000 * MILLISECOND


# --- depth, force, renewal ------------------------------------------------------------------------


def test_what_java_took_twice_is_free_after_two_releases(
    java: Java, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    java.obey("a", "lock", key("twice"))
    java.obey("a", "lock", key("twice"))
    python = waiting(pool, "threads", client, "twice")
    java.obey("a", "unlock", key("twice"))
    assert client.lock("twice").try_acquire() is None
    assert java.obey("a", "count", key("twice")) == "1 true"
    second = int(java.obey("a", "unlock", key("twice")))
    assert python.result(TIMEOUT) > second


def test_what_python_took_twice_is_free_after_two_releases(
    java: Java, server: Redis, client: leaselock.Client
) -> None:
    lock = client.lock("twice-python")
    first, second = lock.acquire(), lock.acquire()
    assert first is not None
    assert second is not None
    waiter = java_waits(server, java, "a", lock.name)
    second.release()
    assert java.obey("b", "count", key(lock.name)) == "0 true"
    assert java.obey("b", "trylock", key(lock.name), 0).startswith("false")
    released = time.monotonic_ns()
    first.release()
    assert int(waiter.result(TIMEOUT)) > released
    java.obey("a", "unlock", key(lock.name))


@pytest.mark.parametrize("colour", COLOURS)
def test_python_breaks_what_java_holds(
    colour: str, java: Java, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    name = f"break-java-{colour}"
    java.obey("a", "lock", key(name))
    assert client.lock(name).holder() is not None
    python = waiting(pool, colour, client, name)
    assert client.break_lock(name) is not None
    python.result(TIMEOUT)
    assert java.obey("a", "unlock", key(name)) == "error IllegalMonitorStateException"
    assert not client.lock(name).locked()


def test_java_forces_what_python_holds(
    java: Java, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    lease = client.lock("force-python", lease=WATCHDOG).acquire()
    assert lease is not None
    python = waiting(pool, "threads", client, "force-python")
    forced = java.obey("a", "force", key("force-python"))
    assert forced.startswith("true ")
    delay = python.result(TIMEOUT) - int(forced.split()[1])
    assert delay < 5000 * MILLISECOND
    eventually(lambda: lease.lost)
    with pytest.raises(leaselock.LeaseLost):
        lease.release()


def test_both_renew_side_by_side(java: Java, client: leaselock.Client) -> None:
    with client.lock("ours", lease=WATCHDOG) as lease:
        java.obey("a", "lock", key("theirs"))
        until = time.monotonic() + 3 * WATCHDOG
        while time.monotonic() < until:
            assert java.obey("b", "trylock", key("ours"), 300).startswith("false")
            assert client.lock("theirs").try_acquire(timeout=0.3) is None
            lease.ensure()
    assert int(java.obey("a", "unlock", key("theirs"))) > 0


# --- fencing and exclusion ------------------------------------------------------------------------


def test_tokens_rise_on_both_sides(java: Java, client: leaselock.Client) -> None:
    tokens = [int(java.obey("a", "token", key("tokens")))]
    java.obey("a", "unlock", key("tokens"))
    for _ in range(TRIES):
        with client.lock("tokens") as lease:
            tokens.append(lease.token)
        tokens.append(int(java.obey("a", "token", key("tokens"))))
        java.obey("a", "unlock", key("tokens"))
    assert sorted(set(tokens)) == tokens


# Java takes its time to start on a busy machine.
@pytest.mark.timeout(300)
def test_many_clients_of_both_never_hold_at_once(
    built: None, server: Redis, tmp_path: Path
) -> None:
    folder = tmp_path / "turns"
    folder.mkdir()
    javas = [Java([server.port]) for _ in range(4)]
    try:
        for java in javas:
            java.wait()
        with leaselock.Client(server.url) as client, client.lock("contended"):
            pythons = [
                contender(kind, server.url, "contended", folder / f"{kind} {number}")
                for number, kind in enumerate(COLOURS * 2)
            ]
            orders = [
                java.order("a", "loop", key("contended"), TURNS, HOLD, folder / f"java-{number}")
                for number, java in enumerate(javas)
            ]
            all_ready(folder, len(pythons) + len(orders))
        finished(pythons)
        for order in orders:
            order.result(TIMEOUT)
    finally:
        for java in javas:
            java.stop()
    found = turns(folder)
    check_exclusion(found)
    check_tokens(found)
    assert list(counts(found).values()) == [TURNS] * 8
    for kind in ("java", *COLOURS):
        assert longest_without(found, kind) < len(found) / 4, kind
