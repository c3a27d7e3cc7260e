"""python -m verification.hazards [STORE ...]: the hazard table, on private servers."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from verification.hazards.private_servers import MAKERS, stores
from verification.hazards.report import summary, text
from verification.hazards.runner import PARALLEL, Selection, run

if TYPE_CHECKING:
    from verification.hazards.catalogue import Hazard
    from verification.hazards.methods import Method
    from verification.hazards.outcome import Outcome

HEAD = """\
# The hazard table

The hazards of the literature, tested on real stores: processes are killed and frozen, replies are
lost, clocks are set wrong, servers are killed, and another process tries to acquire the lock. Each
cell is the outcome of a run on private servers on one machine, by
`python -m verification.hazards`, which wrote this page. The naive methods are recipes from books
and blogs, written with the plain drivers (`naive_*.py` in
`verification/hazards`); a test checks that they fail: `verification/hazards/test_hazard_table.py`.
No default of leaselock may fail.

![the table](hazard-table.svg)

"""


def main() -> int:
    """Run, and print the table and the failures; return 1 if there are any."""
    options = parse_arguments()
    began = time.monotonic()

    def on_outcome(method: Method, hazard: Hazard, outcome: Outcome) -> None:
        passed = time.monotonic() - began
        sys.stderr.write(f"{passed:6.1f} s  {hazard.key:16} {method.name:36} {outcome}\n")

    selection = Selection(
        options.only, options.way, options.at_once, options.markdown, options.picture
    )
    with ExitStack() as stack:
        kinds = options.stores or list(MAKERS)
        table = run(selection, stores(stack, kinds), on_outcome, HEAD)
    print(text(table))
    failures = table.failures()
    print("\n".join([*failures, f"{summary(table)}; {time.monotonic() - began:.0f} s"]))
    return 1 if failures else 0


def parse_arguments() -> argparse.Namespace:
    """Return the parsed arguments."""
    parser = argparse.ArgumentParser(prog="python -m verification.hazards", description=__doc__)
    add = parser.add_argument
    add("--only", metavar="HAZARD", action="append", default=[], help="run this one (repeatable)")
    ways = "run the ways of locking that have TEXT in their names (repeatable)"
    add("--way", metavar="TEXT", action="append", default=[], help=ways)
    add("--at-once", metavar="N", type=int, default=PARALLEL, help="cells to run in parallel")
    add(
        "--markdown",
        metavar="FILE",
        help="write the table as Markdown, all observations beside it as .tsv",
    )
    add("--picture", metavar="FILE", help="draw the table: .svg or .png (needs matplotlib)")
    add("stores", nargs="*", metavar="STORE", help=", ".join(MAKERS))
    options = parser.parse_args()
    unknown = sorted(set(options.stores) - set(MAKERS))
    if unknown:
        parser.error(f"no such store: {', '.join(unknown)}; known are {', '.join(MAKERS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
