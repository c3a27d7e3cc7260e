"""Many waiting tasks of one client: one of them polls the server for all.

Invariants: the load on the server does not depend on the number of waiters, and when the polling
task ends, another one continues.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from tests.pace import pace

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable

    from testkit.servers.redis import Redis

pytestmark = pytest.mark.timing

# It only bounds a failure.
TIMEOUT = 120.0
LOCK = "contended"
QUEUE = f"leaselock:queue:{{lock:{LOCK}}}"
TASKS = 50
# One poll is about a dozen commands, at most every three seconds; otherwise every task would poll.
WATCHED, COMMANDS = 4.0, 60


@pytest.fixture
def empty(server: Redis) -> Redis:
    server.ask("FLUSHALL")
    return server


def hold(server: Redis, ms: int) -> None:
    """Take the lock as another program would that dies without a release."""
    server.ask("HSET", f"lock:{LOCK}", "0-0-0-0-0:1", 1)
    server.ask("PEXPIRE", f"lock:{LOCK}", ms)


async def wait_until(happened: Callable[[], bool]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, eventually, happened, TIMEOUT)


async def queue_up(
    server: Redis, lock: leaselock.AsyncLock, count: int
) -> list[asyncio.Task[None]]:
    async def once() -> None:
        async with lock:
            pass

    tasks = [asyncio.create_task(once()) for _ in range(count)]
    await wait_until(lambda: server.ask("ZCARD", QUEUE) == count)
    return tasks


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_one_task_polls_for_all(empty: Redis) -> None:
    async def scenario() -> int:
        async with leaselock.AsyncClient(empty.url) as client:
            tasks = await queue_up(empty, client.lock(LOCK), TASKS)
            before = empty.command_count()
            await asyncio.sleep(WATCHED)
            asked = empty.command_count() - before
            await end(tasks)
            return asked

    hold(empty, 600_000)
    assert asyncio.run(scenario()) < COMMANDS


def test_when_the_polling_task_gives_up_the_next_one_polls(empty: Redis) -> None:
    async def scenario() -> float:
        async with leaselock.AsyncClient(empty.url) as client:
            tasks = await queue_up(empty, client.lock(LOCK), TASKS)
            await end(tasks[: TASKS // 2])
            began = time.monotonic()
            await asyncio.wait_for(asyncio.gather(*tasks[TASKS // 2 :]), TIMEOUT)
            return time.monotonic() - began

    hold(empty, 1500)
    assert asyncio.run(scenario()) < 5.0 * pace()


def test_the_task_that_became_first_by_a_grant_polls_soon(empty: Redis) -> None:
    """The polling task is granted the lock, and the server loses its data meanwhile."""

    async def scenario() -> float:
        async with leaselock.AsyncClient(empty.url) as client:
            lock = client.lock(LOCK)
            gate = asyncio.Event()

            async def first() -> None:
                async with lock:
                    empty.ask("DEL", QUEUE)
                    hold(empty, 500)
                    await gate.wait()

            waiting = asyncio.create_task(first())
            await wait_until(lambda: empty.ask("ZCARD", QUEUE) == 1)
            tasks = [asyncio.create_task(lock.acquire()) for _ in range(2)]
            await wait_until(lambda: empty.ask("ZCARD", QUEUE) == 3)
            empty.ask("DEL", f"lock:{LOCK}")
            began = time.monotonic()
            done, _ = await asyncio.wait(tasks, timeout=TIMEOUT, return_when="FIRST_COMPLETED")
            took = time.monotonic() - began
            assert len(done) == 1
            for task in (*tasks, waiting):
                task.cancel()
            await asyncio.gather(*tasks, waiting, return_exceptions=True)
            return took

    hold(empty, 600_000)
    assert asyncio.run(scenario()) < 8.0 * pace()


def test_a_burst_of_requests_does_not_mean_a_silent_server(empty: Redis) -> None:
    async def scenario() -> None:
        async with leaselock.AsyncClient(empty.url, op_timeout=0.5 * pace()) as client:
            await end(await queue_up(empty, client.lock(LOCK), 1500))

    hold(empty, 600_000)
    asyncio.run(scenario())


def test_a_message_wakes_the_named_task(empty: Redis) -> None:
    """The first waiter in the server's queue need not be the first one of its client."""

    async def scenario() -> list[str]:
        order: list[str] = []

        async def enter(lock: leaselock.AsyncLock, label: str) -> None:
            async with lock:
                order.append(label)

        async with (
            leaselock.AsyncClient(empty.url) as client,
            leaselock.AsyncClient(empty.url) as other,
        ):
            lease = await other.lock(LOCK).acquire()
            assert lease is not None
            first = asyncio.create_task(enter(client.lock(LOCK), "first"))
            await wait_until(lambda: empty.ask("ZCARD", QUEUE) == 1)
            second = asyncio.create_task(enter(client.lock(LOCK), "second"))
            await wait_until(lambda: empty.ask("ZCARD", QUEUE) == 2)
            empty.ask("ZADD", QUEUE, 1, empty.ask("ZRANGE", QUEUE, 1, 1)[0])
            await lease.release()
            await asyncio.wait_for(asyncio.gather(first, second), TIMEOUT)
        return order

    assert asyncio.run(scenario()) == ["second", "first"]
