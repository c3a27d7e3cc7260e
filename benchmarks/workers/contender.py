"""One of several contending processes: `python -m benchmarks.workers.contender NAME FOLDER MODE`.

The process reports when it is ready, and then obeys lines "contend HOLD SECONDS", each answered by
one line; the programs in other languages do the same. Invariant: the times of a hold are taken
after the acquire and before the release, so two intervals overlap only if there were two holders.

MODE is empty for an exclusive lock, "read" or "write" for a side of a read/write lock, or a number
of permits of which each hold takes one. The counter is meaningful for exclusive locks only.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from benchmarks.contestants import Contestant, contestant
from benchmarks.workers.process import report

COUNTER_SIZE = 8


class HoldTimes(NamedTuple):
    """The times of one hold, in nanoseconds of the clock that all processes share."""

    requested: int
    granted: int
    released: int


class ReadWriteContestant(Contestant, Protocol):
    """A contestant with a read/write lock."""

    def use_side(self, side: str) -> None:
        """Use the "read" or the "write" side of a lock instead."""


class SemaphoreContestant(Contestant, Protocol):
    """A contestant with a semaphore."""

    def use_permits(self, permits: int) -> None:
        """Use a semaphore with this many permits instead; each acquire takes one."""


def opened(name: str, folder: Path, mode: str) -> Contestant:
    """Open the lock of a contestant in that mode."""
    lock = contestant(name)(folder)
    if mode.isdigit():
        cast("SemaphoreContestant", lock).use_permits(int(mode))
    elif mode:
        cast("ReadWriteContestant", lock).use_side(mode)
    return lock


def count_up(file: int) -> None:
    """Increment the counter non-atomically: concurrent holders would lose updates."""
    number = int.from_bytes(os.pread(file, COUNTER_SIZE, 0), "little")
    os.pwrite(file, (number + 1).to_bytes(COUNTER_SIZE, "little"), 0)


def contend(lock: Contestant, file: int, hold: float, until: int) -> list[HoldTimes]:
    """Acquire and release the lock in a loop until *until*."""
    holds = []
    while (requested := time.monotonic_ns()) < until:
        lock.acquire()
        granted = time.monotonic_ns()
        count_up(file)
        if hold:
            time.sleep(hold)
        released = time.monotonic_ns()
        lock.release()
        holds.append(HoldTimes(requested, granted, released))
    return holds


def main(name: str, folder: str, mode: str) -> None:
    """Get ready, wait for commands, contend and report."""
    lock = opened(name, Path(folder), mode)
    file = os.open(Path(folder, "counter"), os.O_RDWR | os.O_CREAT, 0o600)
    lock.acquire()
    lock.release()
    report(True)
    for line in sys.stdin:
        hold, seconds = map(float, line.split()[1:])
        cpu = time.process_time()
        holds = contend(lock, file, hold, time.monotonic_ns() + round(seconds * 1e9))
        report({"holds": holds, "cpu": time.process_time() - cpu})
    lock.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
