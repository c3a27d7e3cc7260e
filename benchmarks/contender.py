"""One of several processes that contend: `python -m benchmarks.contender NAME FOLDER HOLD TURN`.

Law: an interval is taken inside what it stands for, after the acquire and before the release. So
two intervals that overlap are two holders at once.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contestants import contestant
from benchmarks.crew import say

if TYPE_CHECKING:
    from benchmarks.contestants import Contestant

COUNTER_SIZE = 8


class Stint(NamedTuple):
    """One hold, in nanoseconds of the clock that all processes share."""

    asked: int
    granted: int
    given_back: int


def count_up(file: int) -> None:
    """Add 1 in a way that loses updates unless one process at a time does it."""
    number = int.from_bytes(os.pread(file, COUNTER_SIZE, 0), "little")
    os.pwrite(file, (number + 1).to_bytes(COUNTER_SIZE, "little"), 0)


def contend(lock: Contestant, file: int, hold: float, until: int) -> list[Stint]:
    """Take the lock again and again until *until*."""
    stints = []
    while (asked := time.monotonic_ns()) < until:
        lock.acquire()
        granted = time.monotonic_ns()
        count_up(file)
        if hold:
            time.sleep(hold)
        given_back = time.monotonic_ns()
        lock.release()
        stints.append(Stint(asked, granted, given_back))
    return stints


def main(name: str, folder: str, hold: float, turn: float) -> None:
    """Get ready, wait for the word, contend, report."""
    lock = contestant(name)(Path(folder))
    file = os.open(Path(folder, "counter"), os.O_RDWR | os.O_CREAT, 0o600)
    lock.acquire()
    lock.release()
    say("ready")
    sys.stdin.readline()
    cpu = time.process_time()
    stints = contend(lock, file, hold, time.monotonic_ns() + round(turn * 1e9))
    say({"stints": stints, "cpu": time.process_time() - cpu})
    sys.stdin.readline()
    lock.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
