"""python -m tests.storms [--seed N] [--seconds S] [--json FILE] [STORE ...]: one for each store."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.storms.stages import STAGES
from tests.storms.storm import play

if TYPE_CHECKING:
    from tests.storms.storm import Report


def main() -> int:
    """Play, and print the report as Markdown; 1 when a promise was broken."""
    words = arguments()
    names = words.stores or list(STAGES)
    reports = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="storm-") as folder:
            reports.append(raging(name, words.seed, words.seconds, Path(folder) / "storm"))
    print(markdown(reports))
    if words.json:
        Path(words.json).write_text(json.dumps([figures(r) for r in reports], indent=1) + "\n")
    return 0 if all(report.ok for report in reports) else 1


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.storms", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="of faults, for each store")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STAGES))
    words = parser.parse_args()
    unknown = sorted(set(words.stores) - set(STAGES))
    if unknown:
        parser.error(f"no such store: {', '.join(unknown)}; known are {', '.join(STAGES)}")
    return words


def raging(name: str, seed: int, seconds: float, folder: Path) -> Report:
    """One storm, and on a terminal what is happening."""
    began = time.monotonic()
    faults = 0

    def told(fault: str) -> None:
        nonlocal faults
        faults += 1
        if sys.stderr.isatty():
            passed = time.monotonic() - began
            sys.stderr.write(f"\r{name}: {passed:5.1f} s, {faults} faults, {fault:16}")

    report = play(name, seed, seconds, folder, told)
    sys.stderr.write(f"\r{name}: {'kept' if report.ok else 'BROKEN'}{' ' * 40}\n")
    if not report.ok:
        sys.stderr.write(f"{report.verdict}\n{report.complaints}\n")
    return report


def markdown(reports: list[Report]) -> str:
    """A table for people."""
    lines = [
        "| store | grants | faults | died holding | unknown | stale writes let in | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        counts = report.verdict.counts
        stale = sum(v.kind in ("stale-write", "lost-update") for v in report.verdict.violations)
        faults = sum(report.faults.values())
        words = [report.stage, f"{counts.grants:,}", str(faults), str(counts.died_holding)]
        words += [str(counts.unknowns), str(stale), "kept" if report.ok else "BROKEN"]
        lines.append(f"| {' | '.join(words)} |")
    grants = sum(report.verdict.counts.grants for report in reports)
    faults = sum(sum(report.faults.values()) for report in reports)
    lines += ["", f"{grants:,} grants, {faults} faults, seed {reports[0].seed}."]
    return "\n".join(lines)


def figures(report: Report) -> dict[str, object]:
    """A storm in numbers."""
    counts = report.verdict.counts
    return {
        "store": report.stage,
        "seed": report.seed,
        "seconds": report.seconds,
        "faults": report.faults,
        "grants": counts.grants,
        "hand_overs": counts.hand_overs,
        "unknown": counts.unknowns,
        "died_holding": counts.died_holding,
        "writes": counts.writes,
        "wait_p99_ms": counts.wait_p99 / 1e6,
        "violations": [str(violation) for violation in report.verdict.violations],
        "complaints": report.complaints,
    }


if __name__ == "__main__":
    sys.exit(main())
