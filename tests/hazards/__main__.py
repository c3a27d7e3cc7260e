"""python -m tests.hazards [STORE ...]: the hazard table, on private servers that it starts."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.hazards.servers import MAKERS, places

from leaselock.testing.hazards.command import Wish, run
from leaselock.testing.hazards.play import AT_ONCE
from leaselock.testing.hazards.table import summary, text

if TYPE_CHECKING:
    from leaselock.testing.hazards.catalogue import Hazard
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.ways import Way

HEAD = """\
# The hazard table

What the literature warns of, played for real: processes are killed and frozen, answers are lost,
clocks are set wrong, servers die, and another process looks whether it can have the lock. Each cell
is the outcome of a run on private servers on one machine, by `make hazards`, which wrote this page;
[`leaselock hazards URL`](../reference/command-line.md#hazards) plays it on your own test servers.
The naive ways are the recipes of books and blogs, written with the plain drivers
(`naive_*.py` in [the code](../../src/leaselock/testing/hazards)); a test sees them fail:
`tests/hazards/test_hazards_played.py`. No default of leaselock may fail.

![the table](hazard-table.svg)

"""


def main() -> int:
    """Play, print the table, and say what is wrong; 1 when something is."""
    words = arguments()
    began = time.monotonic()

    def told(way: Way, hazard: Hazard, outcome: Outcome) -> None:
        passed = time.monotonic() - began
        sys.stderr.write(f"{passed:6.1f} s  {hazard.key:16} {way.name:36} {outcome}\n")

    wish = Wish(words.only, words.way, words.at_once, words.markdown, words.picture)
    with ExitStack() as stack:
        table = run(wish, places(stack, words.stores or list(MAKERS)), told, HEAD)
    print(text(table))
    complaints = table.complaints()
    print("\n".join([*complaints, f"{summary(table)}; {time.monotonic() - began:.0f} s"]))
    return 1 if complaints else 0


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.hazards", description=__doc__)
    add = parser.add_argument
    add("--only", metavar="HAZARD", action="append", default=[])
    add("--way", metavar="TEXT", action="append", default=[])
    add("--at-once", metavar="N", type=int, default=AT_ONCE)
    add("--markdown", metavar="FILE")
    add("--picture", metavar="FILE")
    add("stores", nargs="*", metavar="STORE", help=", ".join(MAKERS))
    words = parser.parse_args()
    unknown = sorted(set(words.stores) - set(MAKERS))
    if unknown:
        parser.error(f"no such store: {', '.join(unknown)}; known are {', '.join(MAKERS)}")
    return words


if __name__ == "__main__":
    sys.exit(main())
