"""chaos: worker processes that are killed and frozen on a store, and what their history proves."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from leaselock.cli import codes
from leaselock.cli.voice import say
from leaselock.testing.chaos.picture import draw, plots
from leaselock.testing.chaos.progress import watched
from leaselock.testing.chaos.report import figures, markdown
from leaselock.testing.chaos.stage import Stage

if TYPE_CHECKING:
    import argparse

    from leaselock.testing.chaos.storm import Report


def do_chaos(options: argparse.Namespace) -> int:
    """Play a storm, and say what it came to; 1 when a promise was broken."""
    if options.picture:
        plots()
    with tempfile.TemporaryDirectory(prefix="leaselock-chaos-") as folder:
        url = options.store or f"sqlite:///{folder}/locks.db"
        if not options.quiet:
            say(f"{options.seconds:g} s of faults against processes that take the locks 'storm *'")
        stage = Stage("given store" if options.store else "sqlite", url, idle=15.0)
        report = watched(stage, options.seed, options.seconds, Path(folder) / "storm")
    _tell(report, options)
    return 0 if report.ok else codes.UNMET


def _tell(report: Report, options: argparse.Namespace) -> None:
    print(json.dumps(figures(report)) if options.json else markdown([report]))
    if options.picture:
        draw(report, Path(options.picture))
