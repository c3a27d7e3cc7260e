"""A process full of tasks: `python -m benchmarks.tasks NAME FOLDER TASKS LOCKS SECONDS`.

Each task takes one of the locks and gives it back, again and again; with as many locks as tasks,
each has its own. Law: a pair counts in whatever second it ends, and the time runs until the last
task is back.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contestants import contestant
from benchmarks.contestants.looped import Looped
from benchmarks.crew import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.contestants.looped import Lock


async def rate(locks: Sequence[Lock], seconds: float) -> dict[str, float]:
    """How many pairs a second all tasks make together, and the processor's time for one."""
    end = time.perf_counter() + seconds

    async def work(lock: Lock) -> int:
        count = 0
        while time.perf_counter() < end:
            async with lock:
                count += 1
        return count

    began, cpu = time.perf_counter(), time.process_time()
    pairs = sum(await asyncio.gather(*map(work, locks)))
    wall = time.perf_counter() - began
    return {"rate": pairs / wall, "cpu": (time.process_time() - cpu) / max(1, pairs)}


async def measure(name: str, url: str, tasks: str, locks: str, seconds: str) -> None:
    """One client; a first short turn warms everything up."""
    kind = contestant(name)
    assert issubclass(kind, Looped)
    async with kind.opened(url) as lock_of:
        mine = [lock_of(f"task {number % int(locks)}") for number in range(int(tasks))]
        await rate(mine, float(seconds) / 10)
        say(await rate(mine, float(seconds)))


def main(name: str, folder: str, *sizes: str) -> None:
    """Measure, in a loop."""
    asyncio.run(measure(name, Path(folder, "url").read_text(), *sizes))


if __name__ == "__main__":
    main(*sys.argv[1:])
