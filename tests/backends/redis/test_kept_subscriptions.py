"""The subscription of a contended lock is kept for a while, by threads and by tasks."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis

import leaselock
from leaselock._backends.redis import subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

T = TypeVar("T")
LOCK = "contended"
QUEUE = f"leaselock:queue:{{lock:{LOCK}}}"
# They only bound a failure.
TIMEOUT, LONG = 60.0, 600.0


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


class Fixture:
    """A client, whose tasks or thread are beside this thread, and a rival that holds the lock."""

    def __init__(self, server: Redis, kind: str) -> None:
        self.server = server
        self.worker = ThreadPoolExecutor(1)
        self.rival = leaselock.Client(server.url)
        self.loop = asyncio.new_event_loop()
        self.tasks = threading.Thread(target=self.loop.run_forever)
        self.tasks.start()
        if kind == "threads":
            client = leaselock.Client(server.url)
            self.take: Callable[[], Future[int]] = lambda: self.worker.submit(
                with_lock, client.lock(LOCK)
            )
            self.end: Callable[[], Future[None]] = lambda: self.worker.submit(client.close)
        else:
            tasks = leaselock.AsyncClient(server.url)
            self.take = lambda: self.run(with_async_lock(tasks.lock(LOCK)))
            self.end = lambda: self.run(tasks.close())

    def run(self, coroutine: Coroutine[object, object, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def cycle(self, granted: Sequence[str] = ()) -> str:
        """The client waits for the rival, gets the lock and releases it; return its claim.

        Meanwhile the claims *granted*, which are not its own, are told that they have the lock.
        """
        with self.rival.lock(LOCK) as lease:
            taken = self.take()
            eventually(lambda: self.server.ask("ZCARD", QUEUE) == 1)
            claims = self.server.ask("ZRANGE", QUEUE, "0", "-1")
            self.tell(granted)
            assert not taken.done()
        # The token of the grant, not one of a message for another claim.
        assert taken.result(TIMEOUT) > lease.token
        assert isinstance(claims, list)
        return str(claims[0])

    def tell(self, granted: Sequence[str]) -> None:
        """Send the message of a grant with the token 1 to each claim, on each channel."""
        for channel, claim in itertools.product(channels(self.server), granted):
            assert self.server.ask("PUBLISH", channel, f"{claim}\n1\n3000") == 1

    def subscriptions(self) -> int:
        """How many SUBSCRIBE and UNSUBSCRIBE the server has carried out."""
        text = str(self.server.ask("INFO", "commandstats"))
        return sum(map(int, re.findall(r"cmdstat_(?:un)?subscribe:calls=(\d+)", text)))

    def close(self) -> None:
        self.end().result(TIMEOUT)
        self.worker.shutdown()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.tasks.join()
        self.loop.close()
        self.rival.close()


def with_lock(lock: leaselock.Lock) -> int:
    with lock as lease:
        return lease.token


async def with_async_lock(lock: leaselock.AsyncLock) -> int:
    async with lock as lease:
        return lease.token


@pytest.fixture(params=["threads", "asyncio"])
def fixture(server: Redis, request: pytest.FixtureRequest) -> Iterator[Fixture]:
    server.ask("FLUSHALL")
    fixture = Fixture(server, request.param)
    yield fixture
    fixture.close()


def channels(server: Redis) -> list[str]:
    found = server.ask("PUBSUB", "CHANNELS", "*")
    assert isinstance(found, list)
    return [str(name) for name in found]


def test_a_contended_cycle_needs_no_subscription(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "KEEP", LONG)
    fixture.cycle()
    before = fixture.subscriptions()
    assert before > 0
    for _ in range(3):
        fixture.cycle()
    assert fixture.subscriptions() == before


def test_an_unused_subscription_ends(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "KEEP", 0.001)
    fixture.cycle()
    before = fixture.subscriptions()
    assert before > 0
    eventually(lambda: not channels(fixture.server))
    fixture.cycle()
    assert fixture.subscriptions() > before


def test_a_kept_subscription_that_the_server_has_ended_is_made_again(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "KEEP", LONG)
    fixture.cycle()
    before = fixture.subscriptions()
    fixture.server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    fixture.cycle()
    assert fixture.subscriptions() > before


def test_messages_for_earlier_claims_are_dropped(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing reads a thread's connection while its subscription is kept."""
    monkeypatch.setattr(subscriptions, "KEEP", LONG)
    others = (fixture.cycle(), "nobody:1")
    assert channels(fixture.server)
    for _ in range(100):
        fixture.tell(others)
    fixture.cycle(granted=others)
