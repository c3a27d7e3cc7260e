"""python -m tests.controls [--markdown FILE]: play the negative controls."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.controls.controls import CONTROLS, cells
from tests.hazards.servers import MAKERS, places

from leaselock.testing.hazards.outcome import Verdict
from leaselock.testing.hazards.play import play_cells

if TYPE_CHECKING:
    from leaselock.testing.hazards.play import Table

HEAD = """\
# Negative controls

A test suite that finds nothing is meaningful only if it finds known defects. This page applies the
same tests to other libraries and configurations, with defects that their users reported or that we
found, each in the version shown, on real servers. `make controls` wrote this page. Each row is a
test (`tests/controls/test_controls.py`) that fails if the defect is *not* found: then it has been
fixed, and another defect takes its place. Most use the plays of [the hazard
table](hazard-table.md), the others are in `tests/controls/plays.py`. The third column names the
rows of [the page of hazards](hazards.md).

This is not a criticism: these libraries do much well, and some say plainly what they do not
guarantee.

"""


def played() -> Table:
    """Play all controls on private servers."""
    with ExitStack() as stack:
        return play_cells(cells(), places(stack, list(MAKERS)))


def markdown(table: Table) -> str:
    """Return the page."""
    lines = [
        "| control | package | hazard | known defect | outcome |",
        "|---|---|---|---|---|",
    ]
    for control in CONTROLS.values():
        outcome = table.outcomes[control.cell]
        words = [control.key, control.who, control.hazard.rows, control.defect, str(outcome)]
        lines.append(f"| {' | '.join(words)} |")
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Play, print and write the page; return 1 if a defect was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.controls", description=__doc__)
    parser.add_argument("--markdown", metavar="FILE")
    words = parser.parse_args()
    table = played()
    if words.markdown:
        Path(words.markdown).write_text(markdown(table), "utf-8")
    missed = [c for c in CONTROLS.values() if table.outcomes[c.cell].verdict != Verdict.FAILED]
    for control in CONTROLS.values():
        print(f"{control.key:36} {table.outcomes[control.cell]}")
    print(f"{len(CONTROLS) - len(missed)} of {len(CONTROLS)} defects found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
