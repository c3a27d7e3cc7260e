"""A process full of tasks: `python -m benchmarks.tasks NAME FOLDER TASKS LOCKS SECONDS`.

Each task takes one of the locks and gives it back, again and again; with as many locks as tasks,
each has its own. Law: what is not done when the time is over does not count; the process is told
to end, and who waits then goes with it.
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

WARM_UP, WARM_UP_SECONDS = 50, 0.3


async def rate(locks: Sequence[Lock], seconds: float) -> dict[str, float]:
    """How many pairs a second all tasks make together, and the processor's time for one."""
    began, cpu = time.perf_counter(), time.process_time()
    count = 0

    async def work(lock: Lock) -> None:
        nonlocal count
        while time.perf_counter() < began + seconds:
            async with lock:
                count += 1

    done, _ = await asyncio.wait(
        [asyncio.create_task(work(lock)) for lock in locks], timeout=seconds
    )
    wall = time.perf_counter() - began
    for task in done:
        task.result()
    count = max(1, count)
    return {"rate": count / wall, "cpu": (time.process_time() - cpu) / count}


async def measure(name: str, url: str, tasks: str, locks: str, seconds: str) -> None:
    """One client; a first short turn warms everything up."""
    kind = contestant(name)
    assert issubclass(kind, Looped)
    async with kind.opened(url) as lock_of:
        mine = [lock_of(f"task {number % int(locks)}") for number in range(int(tasks))]
        await rate([lock_of(f"warm {number}") for number in range(WARM_UP)], WARM_UP_SECONDS)
        say(await rate(mine, float(seconds)))


def main(name: str, folder: str, *sizes: str) -> None:
    """Measure, in a loop."""
    asyncio.run(measure(name, Path(folder, "url").read_text(), *sizes))


if __name__ == "__main__":
    main(*sys.argv[1:])
