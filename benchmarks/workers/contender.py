"""One of several contending processes: `python -m benchmarks.workers.contender NAME FOLDER`.

The process reports when it is ready, and then obeys lines "contend HOLD SECONDS", each answered by
one line; the programs in other languages do the same. Invariant: the times of a hold are taken
after the acquire and before the release, so two intervals overlap only if there were two holders.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contestants import contestant
from benchmarks.workers.process import report

if TYPE_CHECKING:
    from benchmarks.contestants import Contestant

COUNTER_SIZE = 8


class HoldTimes(NamedTuple):
    """The times of one hold, in nanoseconds of the clock that all processes share."""

    requested: int
    granted: int
    released: int


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


def main(name: str, folder: str) -> None:
    """Get ready, wait for commands, contend and report."""
    lock = contestant(name)(Path(folder))
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
