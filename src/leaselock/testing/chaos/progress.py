"""What is seen of a storm while it goes on: a line that is written anew, on a terminal only."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from leaselock.testing.chaos.storm import play

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock.testing.chaos.stage import Stage
    from leaselock.testing.chaos.storm import Report


def watched(stage: Stage, seed: int, seconds: float, folder: Path) -> Report:
    """One storm; what it came to is said on standard error."""
    began = time.monotonic()
    faults = 0

    def told(fault: str) -> None:
        nonlocal faults
        faults += 1
        if sys.stderr.isatty():
            passed = time.monotonic() - began
            sys.stderr.write(f"\r{stage.name}: {passed:5.1f} s, {faults} faults, {fault:16}")

    report = play(stage, seed, seconds, folder, told)
    end = "\r" if sys.stderr.isatty() else ""
    grants = report.verdict.counts.grants
    words = f"{grants} grants, {faults} faults, {'kept' if report.ok else 'BROKEN'}"
    sys.stderr.write(f"{end}{stage.name}: {words}{' ' * 30}\n")
    if not report.ok:
        sys.stderr.write(f"{report.verdict}\n{report.complaints}\n")
    return report
