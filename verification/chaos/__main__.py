"""python -m verification.chaos [--seed N] [--seconds S] [--linearizable] [--json FILE]
[--docs FOLDER] [STORE ...]

One chaos run for each store, on private servers. --docs writes a page and its pictures.
--linearizable also has each history judged by porcupine, which needs Go.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from testkit.chaos.report import figures, markdown
from testkit.chaos.run import run_with_progress
from testkit.chaos.timeline import draw
from verification.chaos import linearizable
from verification.chaos.clock import with_jumping_clocks
from verification.chaos.operations import Checker
from verification.chaos.targets import TARGETS

if TYPE_CHECKING:
    from testkit.chaos.run import Report
    from verification.chaos.linearizable import Judged


DRAWN = ("sqlite", "redis", "redlock-3", "zookeeper", "postgres-lease")
PAGE = Path(__file__).parent / "page.md"


def main() -> int:
    """Run, and print the report as Markdown; return 1 if a guarantee was broken."""
    options = arguments()
    runs = [run_one(name, options) for name in options.stores or list(TARGETS)]
    reports = [report for report, _ in runs]
    verdicts = [verdict for _, verdict in runs if verdict is not None]
    print(markdown(reports))
    if verdicts:
        print(f"\n{linearizable.markdown(verdicts)}")
    if options.docs:
        (Path(options.docs) / "README.md").write_text(page(reports, options.seconds))
    if options.json:
        Path(options.json).write_text(json.dumps([figures(r) for r in reports], indent=1) + "\n")
    kept = all(report.ok for report in reports)
    return 0 if kept and not any(verdict.complaints for verdict in verdicts) else 1


def arguments() -> argparse.Namespace:
    """Return the parsed arguments."""
    parser = argparse.ArgumentParser(prog="python -m verification.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="of faults, for each store")
    parser.add_argument("--linearizable", action="store_true", help="have porcupine judge, too")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--docs", metavar="FOLDER", help="write README.md and pictures to FOLDER")
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(TARGETS))
    options = parser.parse_args()
    unknown = sorted(set(options.stores) - set(TARGETS))
    if unknown:
        parser.error(f"no such store: {', '.join(unknown)}; known are {', '.join(TARGETS)}")
    if options.linearizable and shutil.which("go") is None:
        parser.error("--linearizable needs Go, which is not installed")
    return options


def run_one(name: str, options: argparse.Namespace) -> tuple[Report, Judged | None]:
    """Run one target; draw its timeline and judge its history if asked for."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, ExitStack() as stack:
        target = with_jumping_clocks(
            TARGETS[name](name, stack, Path(folder) / "chaos"), Path(folder)
        )
        report = run_with_progress(target, options.seed, options.seconds, Path(folder) / "chaos")
        judged = None
        if options.linearizable:
            judged = linearizable.judge(Checker(Path(folder)), target, report)
    if options.docs and name in DRAWN:
        pictures = Path(options.docs) / "pictures"
        pictures.mkdir(exist_ok=True)
        draw(report, pictures / f"{name}.png")
    return report, judged


def page(reports: list[Report], seconds: float) -> str:
    """Return the page of the documentation."""
    drawn = [report.target for report in reports if report.target in DRAWN]
    pictures = "\n\n".join(f"![chaos run on {name}](pictures/{name}.png)" for name in drawn)
    words = PAGE.read_text()
    return words.format(seed=reports[0].seed, seconds=seconds, table=markdown(reports)) + pictures


if __name__ == "__main__":
    sys.exit(main())
