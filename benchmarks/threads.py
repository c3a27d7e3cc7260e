"""A process full of threads: `python -m benchmarks.threads NAME FOLDER THREADS SECONDS`.

One client, and a lock for each thread, which takes it and gives it back, again and again.
"""

from __future__ import annotations

import copy
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, cast

from benchmarks.contestants import Contestant, contestant
from benchmarks.crew import say


class Choosing(Contestant, Protocol):
    """One whose client has many locks."""

    def choose(self, name: str) -> None:
        """Use another lock of the client."""


def another(lock: Choosing, name: str) -> Choosing:
    """Another lock of the same client."""
    twin = copy.copy(lock)
    twin.choose(name)
    return twin


def work(lock: Contestant, until: float) -> int:
    """Take it and give it back until then."""
    count = 0
    while time.perf_counter() < until:
        lock.acquire()
        lock.release()
        count += 1
    return count


def rate(pool: ThreadPoolExecutor, locks: list[Choosing], seconds: float) -> dict[str, float]:
    """How many pairs a second all threads make together, and the processor's time for one."""
    began, cpu = time.perf_counter(), time.process_time()
    done = [pool.submit(work, lock, began + seconds) for lock in locks]
    pairs = sum(one.result() for one in done)
    wall = time.perf_counter() - began
    return {"rate": pairs / wall, "cpu": (time.process_time() - cpu) / max(1, pairs)}


def main(name: str, folder: str, threads: str, seconds: str) -> None:
    """A first short turn warms everything up."""
    first = cast("Choosing", contestant(name)(Path(folder)))
    locks = [another(first, f"each {number}") for number in range(int(threads))]
    with ThreadPoolExecutor(len(locks)) as pool:
        rate(pool, locks, float(seconds) / 5)
        say(rate(pool, locks, float(seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
