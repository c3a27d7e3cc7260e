"""The concurrency limit of a client: few requests at a time, in order, and none is lost."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.pace import pace

import leaselock
from leaselock._backends.redis import pool
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.multiplexed import MultiplexedConnection
from leaselock._backends.redis.store import RedisStore
from leaselock._core.backend import Claim, Grant
from leaselock._drivers.aio import Aio

if TYPE_CHECKING:
    from testkit.servers.redis import Redis

MOST = 3
TASKS = 60
OP_TIMEOUT = 0.5
# One op_timeout for all requests. Otherwise it would be one for each group of MOST: 10 s.
SOON = 5.0


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PLACES", MOST)


def locks_of(client: leaselock.AsyncClient) -> list[leaselock.AsyncLock]:
    return [client.lock(f"turn {number}") for number in range(TASKS)]


def ask(driver: Aio, store: RedisStore, name: str) -> asyncio.Task[object]:
    claim = Claim(name, f"holder of {name}", "client", 30.0, "", 0.0)
    acquire = store.backend("hash").acquire(
        claim, wait=False, until=store.now() + OP_TIMEOUT * pace()
    )
    return asyncio.create_task(driver.run(acquire))


def test_all_requests_are_served(server: Redis) -> None:
    async def scenario() -> int:
        async with leaselock.AsyncClient(server.url) as client:
            tasks = [asyncio.create_task(lock.acquire()) for lock in locks_of(client)]
            return sum(not lease.lost for lease in await asyncio.gather(*tasks))

    server.ask("FLUSHALL")
    assert asyncio.run(scenario()) == TASKS


def test_cancelled_requests_do_not_block_the_others(server: Redis) -> None:
    async def scenario() -> None:
        async with leaselock.AsyncClient(server.url) as client:
            tasks = [asyncio.create_task(lock.acquire()) for lock in locks_of(client)]
            for number, task in enumerate(tasks):
                if number % 3:
                    await asyncio.sleep(0)
                    task.cancel()
            left = [task for number, task in enumerate(tasks) if not number % 3]
            assert all(await asyncio.wait_for(asyncio.gather(*left), 60.0))
            await asyncio.gather(*tasks, return_exceptions=True)

    server.ask("FLUSHALL")
    asyncio.run(scenario())


def test_a_queued_request_to_a_silent_server_fails_in_time(server: Redis) -> None:
    async def scenario() -> float:
        async with leaselock.AsyncClient(server.url, op_timeout=OP_TIMEOUT * pace()) as client:
            async with client.lock("warm"):
                pass
            server.pause()
            began = time.monotonic()
            tasks = [asyncio.create_task(lock.acquire()) for lock in locks_of(client)]
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            took = time.monotonic() - began
            server.cont()
            assert all(isinstance(answer, leaselock.StoreError) for answer in answers), answers
            return took

    server.ask("FLUSHALL")
    try:
        assert asyncio.run(scenario()) < SOON * pace()
    finally:
        server.cont()


def test_a_cancelled_request_does_not_mean_a_silent_server(server: Redis) -> None:
    late = 0.0

    def now() -> float:
        return time.monotonic() + late

    async def scenario() -> object:
        nonlocal late
        store = RedisStore(settings_of(server.url), now, MultiplexedConnection)
        driver = Aio((store,))
        server.cont()
        assert await ask(driver, store, "connected")
        server.pause()
        asking = [ask(driver, store, f"frozen {number}") for number in range(MOST)]
        behind = ask(driver, store, "behind")
        await asyncio.sleep(0)
        late += 2 * OP_TIMEOUT * pace()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        server.cont()
        try:
            return await behind
        finally:
            await driver.close()

    server.ask("FLUSHALL")
    server.pause()
    try:
        assert isinstance(asyncio.run(scenario()), Grant)
    finally:
        server.cont()


def test_the_slot_of_a_task_cancelled_at_that_moment_is_passed_on(server: Redis) -> None:
    async def scenario() -> None:
        store = RedisStore(settings_of(server.url), time.monotonic, MultiplexedConnection)
        driver = Aio((store,))
        until = time.monotonic() + 30.0
        address = store.settings.addresses[0]

        def get() -> asyncio.Task[object]:
            return asyncio.create_task(driver.run(store.pool.get(address, until, limited=True)))

        found: Any = await get()
        for _ in range(MOST - 1):
            await get()
        first, second = get(), get()
        await asyncio.sleep(0)
        store.pool.put(found[0])
        first.cancel()
        await asyncio.wait_for(second, 60.0)
        assert first.cancelled()
        await driver.close()

    asyncio.run(scenario())
