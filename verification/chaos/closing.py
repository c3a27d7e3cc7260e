"""python -m verification.chaos.closing [--closes N] [STORE ...]

Clients are closed while eight threads, or tasks, end their bodies, each with a lock of its own. At
the end no lock is held in the private store.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import warnings
from contextlib import ExitStack

from tests.drivers.test_close_while_ending import (
    close_beside_tasks,
    close_beside_threads,
    left,
)
from verification.chaos.crashed import PLACES, STORES

import leaselock


def run(name: str, closes: int) -> int:
    """Close that many clients of a store, each second one in asyncio; return what is left."""
    with ExitStack() as stack:
        url = "memory://closing" if name == "memory" else PLACES[name](stack).url
        began = time.monotonic()
        for number in range(closes):
            if number % 2:
                asyncio.run(close_beside_tasks(url, number))
            else:
                close_beside_threads(url, number)
        count = len(left(url))
        seconds = time.monotonic() - began
    print(f"| {name} | {closes} | {count} | {seconds:.0f} |", flush=True)
    return count


def main() -> int:
    """Run the stores that are named, or all; exit 1 if a lock was left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--closes", type=int, default=1000)
    parser.add_argument("stores", nargs="*", metavar="STORE")
    given = parser.parse_args()
    warnings.simplefilter("ignore", leaselock.UnsafeProtocolWarning)
    print("| store | closes | locks left | seconds |\n|---|---|---|---|")
    return int(sum(run(name, given.closes) for name in given.stores or STORES) > 0)


if __name__ == "__main__":
    sys.exit(main())
