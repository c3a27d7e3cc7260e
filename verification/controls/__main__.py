"""python -m verification.controls [--markdown FILE]: run the controls, and write their page."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from verification.controls.controls import CONTROLS, cells
from verification.hazards.outcome import Verdict
from verification.hazards.private_servers import MAKERS, stores
from verification.hazards.runner import run_cells

if TYPE_CHECKING:
    from verification.hazards.table import Table

HEAD = """\
# Negative controls

The hazard table is credible only if the same trials also find known defects. Here they run on
other libraries and configurations, with defects that their users have reported or that were
observed here, in the versions shown, on real servers. `make controls` wrote this page. Each row is
a test (`verification/controls/test_controls.py`) that fails when the defect is *not* found: then
it has been fixed and must be replaced. Most trials are those of
[the hazard table](hazard-table.md), the others are in
`verification/controls/trials.py`; the third column names the rows of
[the page of hazards](hazards.md).

This page assigns no blame: these libraries do much well, and some state plainly what they do not
guarantee.

"""


def run_controls() -> Table:
    """Run all controls on private servers."""
    with ExitStack() as stack:
        return run_cells(cells(), stores(stack, list(MAKERS)))


def markdown(table: Table) -> str:
    """Return the page."""
    lines = [
        "| control | package | hazard | known defect | outcome |",
        "|---|---|---|---|---|",
    ]
    for control in CONTROLS.values():
        outcome = table.outcomes[control.cell]
        cells = [
            control.key,
            control.package_version,
            control.hazard.rows,
            control.defect,
            str(outcome),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Run, print and write; return 1 if a defect was not found."""
    parser = argparse.ArgumentParser(prog="python -m verification.controls", description=__doc__)
    parser.add_argument("--markdown", metavar="FILE")
    options = parser.parse_args()
    table = run_controls()
    if options.markdown:
        Path(options.markdown).write_text(markdown(table), "utf-8")
    missed = [c for c in CONTROLS.values() if table.outcomes[c.cell].verdict != Verdict.FAILED]
    for control in CONTROLS.values():
        print(f"{control.key:36} {table.outcomes[control.cell]}")
    print(f"{len(CONTROLS) - len(missed)} of {len(CONTROLS)} defects found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
