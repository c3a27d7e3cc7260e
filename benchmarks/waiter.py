"""A process that waits for a lock which it never gets: `python -m benchmarks.waiter NAME FOLDER`.

With the name "nobody" it waits for its standard input, and is what idle Python costs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.contestants import contestant
from benchmarks.crew import say

NOBODY = "nobody"


def main(name: str, folder: str) -> None:
    """Wait for ever."""
    if name == NOBODY:
        say("waiting")
        sys.stdin.readline()
        return
    lock = contestant(name)(Path(folder))
    say("waiting")
    lock.acquire()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
