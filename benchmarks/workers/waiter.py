"""A process that waits for a lock: `python -m benchmarks.workers.waiter NAME FOLDER`.

With the name "idle" it waits for its standard input, to measure an idle Python process.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.contestants import contestant
from benchmarks.workers.process import report

IDLE = "idle"


def main(name: str, folder: str) -> None:
    """Report, and wait."""
    if name == IDLE:
        report("waiting")
        sys.stdin.readline()
        return
    lock = contestant(name)(Path(folder))
    report("waiting")
    lock.acquire()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
