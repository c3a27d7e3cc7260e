"""Skipped is not passed: a pytest plugin (`-p tests.skips`, as `make test` loads it).

As root, or in CI, everything that a test needs can be installed. There a test that was skipped
because a server is missing has failed. Such a test says so by a reason that begins with
"no server"; other reasons (another system, an older kernel) stay what they are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

REASON = "no server"
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def excusable() -> bool:
    """Whether a server may be missing here."""
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return os.geteuid() != 0 and not in_ci


def judged(report: Report) -> Report:
    """The report, made a failure if it was skipped for what should be here."""
    if report.skipped and isinstance(report.longrepr, tuple) and not excusable():
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason.startswith(REASON):
            report.outcome = "failed"
            report.longrepr = f"skipped where nothing may be missing: {reason}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge each test."""
    return judged((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge each module, since one may skip itself as a whole."""
    return judged((yield))
