"""A process full of tasks: `python -m benchmarks.workers.tasks NAME FOLDER TASKS LOCKS SECONDS`.

Each task acquires and releases one of the locks in a loop; with as many locks as tasks, each has
its own. Pairs that are not complete at the end of the time do not count. The process is then
killed, including tasks that still wait. Its peak of memory counts from before the locks exist.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contestants import contestant
from benchmarks.contestants.asyncio_contestant import AsyncioContestant
from benchmarks.workers.process import memory, report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.contestants.asyncio_contestant import Lock

WARM_UP, WARM_UP_SECONDS = 50, 0.3


async def rate(locks: Sequence[Lock], seconds: float) -> dict[str, float]:
    """Return the pairs per second of all tasks together, and the CPU time per pair."""
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
    """Measure one client, after a short warm-up."""
    kind = contestant(name)
    assert issubclass(kind, AsyncioContestant)
    async with kind.opened(url) as lock_of:
        await rate([lock_of(f"warm {number}") for number in range(WARM_UP)], WARM_UP_SECONDS)
        before = memory("VmRSS")
        locks_of_tasks = [lock_of(f"task {number % int(locks)}") for number in range(int(tasks))]
        measured = await rate(locks_of_tasks, float(seconds))
        report(measured | {"peak": memory("VmHWM") - before})


def main(name: str, folder: str, *sizes: str) -> None:
    """Run the measurement in an event loop."""
    asyncio.run(measure(name, Path(folder, "url").read_text(), *sizes))


if __name__ == "__main__":
    main(*sys.argv[1:])
