"""doctor, setup, gc, chaos: the commands that act on a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.cli import exit_codes
from leaselock.cli.answer import answer
from leaselock.cli.formatting import escape
from leaselock.cli.output import GREEN, RED, YELLOW, painter, progress, say
from leaselock.cli.store import check_url, open_client

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from leaselock import Finding

COLOURS = {"ok": GREEN, "warn": YELLOW, "fail": RED, "skip": ""}


def do_doctor(options: argparse.Namespace) -> int:
    """Print what is configured well in the store and what is not."""
    with open_client(options) as client:
        url = client.url
        with progress(options, f"checking {url}"):
            findings = client.doctor()
    if options.json:
        answer(options, {"findings": [finding._asdict() for finding in findings]})
    else:
        from leaselock import Finding

        paint = painter(options)
        for finding in [Finding("ok", f"the store is {url}"), *findings]:
            level = f"{finding.level:4}"
            print(paint(level, COLOURS[finding.level]) + format_finding(finding)[len(level) :])
    return exit_codes.UNMET if _has_failure(findings, strict=options.strict) else 0


def _has_failure(findings: Sequence[Finding], *, strict: bool) -> bool:
    levels = {finding.level for finding in findings}
    return "fail" in levels or (strict and "warn" in levels)


def format_finding(finding: Finding) -> str:
    """Return a finding as a line of text."""
    advice = f" ({finding.advice})" if finding.advice else ""
    return escape(f"{finding.level:4}  {finding.what}{advice}")


def do_setup(options: argparse.Namespace) -> int:
    """Create what the store needs, or print the statements that would."""
    with open_client(options) as client:
        url = client.url
        with progress(options, f"setting up {url}"):
            done = client.setup(dry=options.dry)
    if options.json:
        answer(options, {"statements": done, "dry": options.dry})
    elif options.dry:
        print("".join(f"{statement};\n" for statement in done), end="")
    elif not options.quiet:
        say(f"{url} is ready" if done else f"{url} needs no setup")
    return 0


def do_gc(options: argparse.Namespace) -> int:
    """Remove records that are no longer needed."""
    with (
        open_client(options) as client,
        progress(options, f"removing records from {client.url}"),
    ):
        count = client.gc()
    if options.json:
        answer(options, {"removed": count})
    elif not options.quiet:
        say(f"{count} records removed")
    return 0


def do_chaos(options: argparse.Namespace) -> int:
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
