"""Many requests of one client at a time: none is lost, and each has its deadline."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.pace import pace

import leaselock

if TYPE_CHECKING:
    from testkit.servers.redis import Redis

TASKS = 60
OP_TIMEOUT = 0.5
# One op_timeout for all requests.
SOON = 5.0


def locks_of(client: leaselock.AsyncClient) -> list[leaselock.AsyncLock]:
    return [client.lock(f"turn {number}") for number in range(TASKS)]


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


def test_requests_to_a_silent_server_fail_in_time(server: Redis) -> None:
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
