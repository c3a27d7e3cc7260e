"""doctor, init, gc: how the store is set up, and what keeps it in order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from leaselock.cli import codes
from leaselock.cli.show import SCHEMA
from leaselock.cli.store import client_of
from leaselock.cli.voice import say
from leaselock.cli.words import harmless

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from leaselock import Finding


def do_doctor(options: argparse.Namespace) -> int:
    """Say what is well and what is not."""
    with client_of(options) as client:
        findings = client.doctor()
        url = client.url
    if options.json:
        rows = [finding._asdict() for finding in findings]
        print(json.dumps({"schema": SCHEMA, "backend": url, "findings": rows}))
    else:
        print("\n".join(_line(finding) for finding in findings))
    return codes.UNMET if _bad(findings, options.strict) else 0


def _bad(findings: Sequence[Finding], strict: bool) -> bool:
    levels = {finding.level for finding in findings}
    return "fail" in levels or (strict and "warn" in levels)


def _line(finding: Finding) -> str:
    advice = f" ({finding.advice})" if finding.advice else ""
    return harmless(f"{finding.level:4}  {finding.what}{advice}")


def do_init(options: argparse.Namespace) -> int:
    """Make what the store needs, or print what would make it."""
    with client_of(options) as client:
        done = client.setup(dry=options.dry)
        url = client.url
    if options.json:
        print(json.dumps({"schema": SCHEMA, "backend": url, "statements": done}))
    elif options.dry:
        print("".join(f"{statement};\n" for statement in done), end="")
    elif not options.quiet:
        say(f"{url} is ready" if done else f"{url} needs nothing made")
    return 0


def do_gc(options: argparse.Namespace) -> int:
    """Remove what nobody needs any more."""
    with client_of(options) as client:
        count = client.gc()
    if options.json:
        print(json.dumps({"schema": SCHEMA, "removed": count}))
    elif not options.quiet:
        say(f"{count} records removed")
    return 0
