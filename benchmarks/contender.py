"""One of several processes that contend: `python -m benchmarks.contender NAME FOLDER`.

It says when it is ready, then obeys lines "contend HOLD SECONDS", each answered by one line; the
programs of other languages do the same. Law: an interval is taken inside what it stands for, after
the acquire and before the release. So two intervals that overlap are two holders at once.
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


def main(name: str, folder: str) -> None:
    """Get ready, wait for the word, contend, report."""
    lock = contestant(name)(Path(folder))
    file = os.open(Path(folder, "counter"), os.O_RDWR | os.O_CREAT, 0o600)
    lock.acquire()
    lock.release()
    say(True)
    for line in sys.stdin:
        hold, seconds = map(float, line.split()[1:])
        cpu = time.process_time()
        stints = contend(lock, file, hold, time.monotonic_ns() + round(seconds * 1e9))
        say({"stints": stints, "cpu": time.process_time() - cpu})
    lock.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
