"""The end of the interpreter, for asyncio clients that were not closed."""

from __future__ import annotations

import asyncio
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from leaselock._drivers.aio import Aio, LastLoop
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator


class Holding:
    """A driver whose client holds a lock until its last process has run."""

    def __init__(self, error: Exception | None = None) -> None:
        self.names = ["a"]
        self.error = error
        self.driver = Aio()
        self.driver.last = self.last
        self.driver.unreleased = lambda: self.names
        self.driver.store = "store://"

    async def last(self) -> None:
        if self.error is not None:
            raise self.error
        self.names = []

    async def use(self) -> None:
        async def nothing() -> None:
            pass

        await self.driver.run(nothing())


def test_a_client_whose_loop_is_closed_is_closed_in_another_one() -> None:
    holding = Holding()
    asyncio.run(holding.use())
    holding.driver.end_at_exit()
    assert holding.names == []


def test_a_client_whose_loop_has_stopped_is_closed_in_that_one() -> None:
    holding = Holding()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(holding.use())
    holding.driver.end_at_exit()
    assert holding.names == []
    assert loop.is_closed()


def test_what_could_not_be_released_is_warned_of() -> None:
    holding = Holding(NotApplied("out of reach"))
    asyncio.run(holding.use())
    with pytest.warns(ResourceWarning, match="store://.* out of reach; .* stay locked: 'a'"):
        holding.driver.end_at_exit()


@pytest.fixture
def elsewhere() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_loop_that_still_runs_in_another_thread_is_left_alone(
    elsewhere: asyncio.AbstractEventLoop,
) -> None:
    holding = Holding()
    asyncio.run_coroutine_threadsafe(holding.use(), elsewhere).result()
    with pytest.warns(ResourceWarning, match="another thread; .* stay locked: 'a'"):
        holding.driver.end_at_exit()


def test_a_client_that_was_never_used_is_left_alone() -> None:
    holding = Holding()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        holding.driver.end_at_exit()
    assert caught == []
    # Closing it would release what it holds.
    assert holding.names == ["a"]


def test_the_last_loop_calls_what_blocks_without_a_thread() -> None:
    async def call() -> list[object]:
        found = await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
        with pytest.raises(NotApplied):
            await asyncio.to_thread(fail)
        return [found[0][4], await asyncio.to_thread(threading.current_thread)]

    def fail() -> None:
        raise NotApplied("out of reach")

    loop = LastLoop()
    assert loop.run_until_complete(call()) == [("127.0.0.1", 80), threading.current_thread()]
    loop.close()
