"""doctor: how the store is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.answer import answer
from leaselock._cli.formatting import escape
from leaselock._cli.listing import cut_middle
from leaselock._cli.output import GREEN, RED, YELLOW, painter, progress
from leaselock._cli.store import as_given, open_client, readable_by_others

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
            found = client.doctor()
    findings = [
        *_of_file(options),
        *(each._replace(advice=as_given(each.advice, options)) for each in found),
    ]
    if options.json:
        answer(options, {"findings": [finding._asdict() for finding in findings]})
    else:
        from leaselock import Finding

        paint = painter(options)
        for finding in [Finding("ok", f"the store is {url}"), *findings]:
            level = f"{finding.level:4}"
            print(paint(level, COLOURS[finding.level]) + format_finding(finding)[len(level) :])
    return exit_codes.UNMET if _has_failure(findings, strict=options.strict) else 0


def _of_file(options: DoctorOptions) -> list[Finding]:
    from leaselock import Finding

    path = readable_by_others(options)
    if path is None:
        return []
    what = f"the password in {path} can be read by all users of this machine"
    return [Finding("warn", what, f"chmod o-r {path}")]


def _has_failure(findings: Sequence[Finding], *, strict: bool) -> bool:
    levels = {finding.level for finding in findings}
    return "fail" in levels or (strict and "warn" in levels)


def format_finding(finding: Finding) -> str:
    """Return a finding as a line of text."""
    advice = f" ({finding.advice})" if finding.advice else ""
    return cut_middle(escape(f"{finding.level:4}  {finding.what}{advice}"), LONGEST_FINDING)
