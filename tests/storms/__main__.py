"""python -m tests.storms [--seed N] [--seconds S] [--json FILE] [--pictures FOLDER] [STORE ...]

One storm for each store, on private servers.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.storms.stages import STAGES

from holdfast.testing.chaos.picture import draw
from holdfast.testing.chaos.progress import watched
from holdfast.testing.chaos.report import figures, markdown

if TYPE_CHECKING:
    from holdfast.testing.chaos.storm import Report


def main() -> int:
    """Play, and print the report as Markdown; 1 when a promise was broken."""
    words = arguments()
    reports = [raging(name, words) for name in words.stores or list(STAGES)]
    table = markdown(reports)
    print(table)
    if words.json:
        Path(words.json).write_text(json.dumps([figures(r) for r in reports], indent=1) + "\n")
    return 0 if all(report.ok for report in reports) else 1


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.storms", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="of faults, for each store")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    parser.add_argument("--pictures", metavar="FOLDER", help="draw a timeline of each there")
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STAGES))
    words = parser.parse_args()
    unknown = sorted(set(words.stores) - set(STAGES))
    if unknown:
        parser.error(f"no such store: {', '.join(unknown)}; known are {', '.join(STAGES)}")
    return words


def raging(name: str, words: argparse.Namespace) -> Report:
    """One storm."""
    with tempfile.TemporaryDirectory(prefix="storm-") as folder, ExitStack() as stack:
        stage = STAGES[name](name, stack, Path(folder) / "storm")
        report = watched(stage, words.seed, words.seconds, Path(folder) / "storm")
    if words.pictures:
        draw(report, Path(words.pictures) / f"{name}.png")
    return report


if __name__ == "__main__":
    sys.exit(main())
