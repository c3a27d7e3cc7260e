"""chaos: kill and freeze workers on a test store, and check their history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.answer import answer
from leaselock._cli.output import say
from leaselock._cli.store import check_url

if TYPE_CHECKING:
    from leaselock._cli.options import ChaosOptions


def do_chaos(options: ChaosOptions) -> int:
    """Run a chaos test and print its result; exit 1 when a guarantee was broken."""
    import tempfile
    from pathlib import Path

    from leaselock.testing.chaos.report import figures, markdown
    from leaselock.testing.chaos.run import run_with_progress
    from leaselock.testing.chaos.target import Target
    from leaselock.testing.chaos.timeline import draw, require_matplotlib

    check_url(options.store)
    if options.picture:
        require_matplotlib()
    with tempfile.TemporaryDirectory(prefix="leaselock-chaos-") as folder:
        url = options.store or f"sqlite:///{folder}/locks.db"
        if not options.quiet:
            say(f"{options.seconds:g} s of faults; the locks are named 'storm *'")
        target = Target("given store" if options.store else "sqlite", url, idle=15.0)
        options.store = url
        report = run_with_progress(target, options.seed, options.seconds, Path(folder) / "storm")
    if options.json:
        answer(options, figures(report))
    else:
        print(markdown([report]))
    if options.picture:
        draw(report, Path(options.picture))
    return 0 if report.ok else exit_codes.UNMET
