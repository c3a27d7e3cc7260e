"""A process full of tasks: `python -m benchmarks.tasks KIND URL TASKS SECONDS`.

KIND is holdfast or redis-py, each task having a lock of its own; or sleepers (one lock for all) or
scattered (a lock for each), who wait for what another process holds. Law: what a process says of
its memory, it says of itself, when everything is in place.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import redis.asyncio

import holdfast
from benchmarks.crew import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType


class Lock(Protocol):
    """What both have in common."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> object: ...


async def pairs(locks: Sequence[Lock], seconds: float) -> float:
    """How many pairs a second all tasks make together."""
    end = time.perf_counter() + seconds

    async def work(lock: Lock) -> int:
        count = 0
        while time.perf_counter() < end:
            async with lock:
                count += 1
        return count

    began = time.perf_counter()
    counts = await asyncio.gather(*map(work, locks))
    return sum(counts) / (time.perf_counter() - began)


async def by_holdfast(url: str, tasks: int, seconds: float) -> None:
    """One client."""
    async with holdfast.AsyncClient(url) as client:
        locks = [client.lock(f"task {number}") for number in range(tasks)]
        await pairs(locks, seconds / 10)
        say({"rate": await pairs(locks, seconds)})


async def by_redis_py(url: str, tasks: int, seconds: float) -> None:
    """One client, whose tasks wait for one of some connections: a thousand would be slower."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=50, timeout=None)
    async with redis.asyncio.Redis.from_pool(pool) as client:
        locks = [client.lock(f"py {number}", timeout=30) for number in range(tasks)]
        await pairs(locks, seconds / 10)
        say({"rate": await pairs(locks, seconds)})


def memory() -> int:
    """Bytes of this process that are in memory now."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


async def sleep(url: str, tasks: int, seconds: float, *, scattered: bool) -> None:
    """Wait, and say what waiting costs."""
    client = holdfast.AsyncClient(url)
    names = [f"held {number}" if scattered else "held 0" for number in range(tasks)]
    bare = memory()
    waiting = [asyncio.create_task(client.lock(name).acquire()) for name in names]
    say("asking")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    busy = time.process_time()
    await asyncio.sleep(seconds)
    busy = (time.process_time() - busy) / seconds
    say({"bare": bare, "memory": memory(), "busy": busy})
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await client.close()


def main(kind: str, url: str, tasks: str, seconds: str) -> None:
    """Do it."""
    if kind == "holdfast":
        asyncio.run(by_holdfast(url, int(tasks), float(seconds)))
    elif kind == "redis-py":
        asyncio.run(by_redis_py(url, int(tasks), float(seconds)))
    else:
        asyncio.run(sleep(url, int(tasks), float(seconds), scattered=kind == "scattered"))


if __name__ == "__main__":
    main(*sys.argv[1:])
