"""Many tasks of one client that ask at the same time: few at a time, in order, none forgotten."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import leaselock
from leaselock.backends.redis import turns
from leaselock.backends.redis.aio import AioStore
from leaselock.backends.redis.settings import settings_of
from leaselock.core.backend import Acquire, Claim, Grant

if TYPE_CHECKING:
    from tests.servers.redis import Redis

MOST = 3
CROWD = 60
OP_TIMEOUT = 0.5
# One op_timeout for all; without the law, one for each group of MOST: 10 s.
SOON = 5.0


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST", MOST)


def locks_of(client: leaselock.AsyncClient) -> list[leaselock.AsyncLock]:
    return [client.lock(f"turn {number}") for number in range(CROWD)]


def ask(store: AioStore, name: str) -> asyncio.Task[object]:
    claim = Claim(name, f"holder of {name}", "client", 30.0, "", 0.0)

    async def answer() -> object:
        return await store.call(Acquire(claim, wait=False), store.now() + OP_TIMEOUT)

    return asyncio.create_task(answer())


def test_everybody_has_a_turn(server: Redis) -> None:
    async def scene() -> int:
        async with leaselock.AsyncClient(server.url) as client:
            tasks = [asyncio.create_task(lock.acquire()) for lock in locks_of(client)]
            return len([lease for lease in await asyncio.gather(*tasks) if lease])

    server.ask("FLUSHALL")
    assert asyncio.run(scene()) == CROWD


def test_whoever_goes_away_takes_nobodys_turn(server: Redis) -> None:
    async def scene() -> None:
        async with leaselock.AsyncClient(server.url) as client:
            tasks = [asyncio.create_task(lock.acquire()) for lock in locks_of(client)]
            for number, task in enumerate(tasks):
                if number % 3:
                    await asyncio.sleep(0)
                    task.cancel()
            left = [task for number, task in enumerate(tasks) if not number % 3]
            assert all(await asyncio.wait_for(asyncio.gather(*left), 30.0))
            await asyncio.gather(*tasks, return_exceptions=True)

    server.ask("FLUSHALL")
    asyncio.run(scene())


def test_a_silent_server_keeps_nobody_longer_for_standing_in_line(server: Redis) -> None:
    async def scene() -> float:
        async with leaselock.AsyncClient(server.url, op_timeout=OP_TIMEOUT) as client:
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
        assert asyncio.run(scene()) < SOON
    finally:
        server.cont()


def test_an_asker_who_was_cancelled_is_no_sign_of_a_silent_server(server: Redis) -> None:
    late = 0.0

    def now() -> float:
        return time.monotonic() + late

    async def scene() -> object:
        nonlocal late
        store = AioStore(settings_of(server.url), now, "hash")
        asking = [ask(store, f"frozen {number}") for number in range(MOST)]
        behind = ask(store, "behind")
        await asyncio.sleep(0)
        late += 2 * OP_TIMEOUT
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        server.cont()
        try:
            return await behind
        finally:
            await store.finish()

    server.ask("FLUSHALL")
    server.pause()
    try:
        assert isinstance(asyncio.run(scene()), Grant)
    finally:
        server.cont()


def test_the_turn_of_one_who_was_cancelled_just_then_passes_on() -> None:
    async def scene() -> None:
        line = turns.Turns(lambda: 0.0)
        line.asking = MOST
        first, second = (asyncio.create_task(line.come(1.0)) for _ in range(2))
        await asyncio.sleep(0)
        line.end()
        first.cancel()
        assert await asyncio.wait_for(second, 5.0) == 1.0
        assert first.cancelled()

    asyncio.run(scene())
