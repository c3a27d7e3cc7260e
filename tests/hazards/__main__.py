"""python -m tests.hazards [STORE ...]: play the hazard table on private servers."""

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

Failures described in the literature, played on real stores: processes are killed and frozen,
replies are lost, clocks are set wrong, servers die, and another process checks whether it can
acquire the lock. Each cell is the outcome of a run on private servers of one machine, by
`make hazards`, which wrote this page. The naive methods are recipes from books and blogs, written
with the plain drivers (`naive_*.py` in [the code](../../src/leaselock/testing/hazards)). A test
verifies that they fail: `tests/hazards/test_hazards_played.py`. No default of leaselock may fail.

![the table](hazard-table.svg)

"""


def main() -> int:
    """Play, print the table and its complaints; return 1 if there are any."""
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
    """Return the parsed arguments."""
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
