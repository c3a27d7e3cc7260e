"""A process full of threads: `python -m benchmarks.workers.threads NAME FOLDER THREADS SECONDS`.

One client, and a lock for each thread, which acquires and releases it in a loop.
"""

from __future__ import annotations

import copy
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, cast

from benchmarks.contestants import Contestant, contestant
from benchmarks.workers.process import report


class SwitchableContestant(Contestant, Protocol):
    """A contestant whose client has many locks."""

    def use_lock(self, name: str) -> None:
        """Use another lock of the client."""


def another(lock: SwitchableContestant, name: str) -> SwitchableContestant:
    """Return a contestant for another lock of the same client."""
    copied = copy.copy(lock)
    copied.use_lock(name)
    return copied


def work(lock: Contestant, until: float) -> int:
    """Acquire and release until *until*; return how often."""
    count = 0
    while time.perf_counter() < until:
        lock.acquire()
        lock.release()
        count += 1
    return count


def rate(
    pool: ThreadPoolExecutor, locks: list[SwitchableContestant], seconds: float
) -> dict[str, float]:
    """Return the pairs per second of all threads together, and the CPU time per pair."""
    began, cpu = time.perf_counter(), time.process_time()
    done = [pool.submit(work, lock, began + seconds) for lock in locks]
    pairs = sum(one.result() for one in done)
    wall = time.perf_counter() - began
    return {"rate": pairs / wall, "cpu": (time.process_time() - cpu) / max(1, pairs)}


def main(name: str, folder: str, threads: str, seconds: str) -> None:
    """Measure, after a short warm-up."""
    first = cast("SwitchableContestant", contestant(name)(Path(folder)))
    locks = [another(first, f"each {number}") for number in range(int(threads))]
    with ThreadPoolExecutor(len(locks)) as pool:
        rate(pool, locks, float(seconds) / 5)
        report(rate(pool, locks, float(seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
