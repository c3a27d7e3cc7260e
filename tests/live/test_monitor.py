"""A monitor reads the store once for all its viewers, and survives its absence."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from leaselock import AsyncClient, LeaseLost, NotApplied
from leaselock.live import Monitor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leaselock import LockInfo

# Seconds that no test lasts.
LONG = 1000.0


class CountingClient(AsyncClient):
    """Counts the reads, and refuses them while it is `away`."""

    reads = 0
    away = False

    async def locks(self, pattern: str = "*", *, walk: bool = False) -> list[LockInfo]:
        self.reads += 1
        if self.away:
            raise NotApplied("the store is away")
        return await super().locks(pattern, walk=walk)


@asynccontextmanager
async def monitored(interval: float) -> AsyncIterator[tuple[CountingClient, Monitor]]:
    async with CountingClient("memory://monitor") as client:
        monitor = Monitor(client, interval=interval)
        try:
            yield client, monitor
        finally:
            await monitor.close()


async def viewers_share_a_read() -> None:
    async with monitored(LONG) as (client, monitor):
        async with client.lock("a"):
            views = await asyncio.gather(*(monitor.next() for _ in range(10)))
        assert {id(view) for view in views} == {id(monitor.view)}
        assert [lock.name for lock in monitor.view.locks] == ["a"]
        # A newer view is due after the interval.
        late = asyncio.create_task(monitor.next(views[0].number))
        await asyncio.sleep(0)
        assert not late.done()
        assert await monitor.next() is views[0]
        late.cancel()
        assert client.reads == 1


async def each_view_is_newer() -> None:
    async with monitored(0.0) as (client, monitor):
        first = await monitor.next()
        lease = await client.lock("a").acquire()
        second = await monitor.next(first.number)
        assert [change.kind for change in second.changes] == ["granted"]
        (hold,) = second.locks[0].holders
        assert await monitor.break_lock("a", hold) is not None
        assert await monitor.break_lock("a", hold) is None  # repeated before the next read
        third = await monitor.next(second.number)
        assert [change.kind for change in third.changes] == ["broken"]
        assert await monitor.break_lock("a", hold) is None
        with pytest.raises(LeaseLost):
            await lease.release()


async def the_cancellation_of_a_viewer_is_its_own() -> None:
    async with monitored(0.0) as (client, monitor):
        one, two = (asyncio.create_task(monitor.next()) for _ in range(2))
        await asyncio.sleep(0)
        one.cancel()
        assert (await two).number == 1
        assert client.reads == 1


async def the_store_goes_away_and_comes_back() -> None:
    async with monitored(0.0) as (client, monitor), client.lock("a"):
        known = await monitor.next()
        client.away = True
        away = await monitor.next(known.number)
        assert (away.error, away.locks) == ("the store is away", known.locks)
        client.away = False
        back = await monitor.next(away.number)
        assert (back.error, back.changes) == (None, ())


def test_viewers_share_a_read() -> None:
    asyncio.run(viewers_share_a_read())


def test_each_view_is_newer() -> None:
    asyncio.run(each_view_is_newer())


def test_the_cancellation_of_a_viewer_is_its_own() -> None:
    asyncio.run(the_cancellation_of_a_viewer_is_its_own())


def test_the_store_goes_away_and_comes_back() -> None:
    asyncio.run(the_store_goes_away_and_comes_back())
