"""doctor: how the store is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.answer import answer
from leaselock._cli.formatting import escape
from leaselock._cli.listing import cut_middle
from leaselock._cli.output import GREEN, RED, YELLOW, painter, progress
from leaselock._cli.store import open_client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock import Finding
    from leaselock._cli.options import DoctorOptions

# As many columns are shown of a finding: names of other programs may be of any length.
LONGEST_FINDING = 2000
COLOURS = {"ok": GREEN, "warn": YELLOW, "fail": RED, "skip": ""}


def do_doctor(options: DoctorOptions) -> int:
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
    return cut_middle(escape(f"{finding.level:4}  {finding.what}{advice}"), LONGEST_FINDING)
