"""Skipped is not passed: a pytest plugin (`-p tests.skips`, as `make test` loads it).

Law: as root, or in CI, whatever a test needs can be installed. There a test that was skipped
because a server is missing fails the run. Such a test says so by a reason that begins with
"no server"; other reasons (another system, an older kernel) stay what they are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

REASON = "no server"


def excusable() -> bool:
    """Whether a server may be missing here."""
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return os.geteuid() != 0 and not in_ci


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why the test was skipped, in the words of whoever skipped it."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text.removeprefix("Skipped: ")


def missing(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """The skipped tests that lacked a server."""
    return [report.nodeid for report in reports if reason(report).startswith(REASON)]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that passed only because servers were missing."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or excusable():  # a worker of xdist has no terminal
        return
    lacking = missing(terminal.stats.get("skipped", []))
    if lacking and session.exitstatus == pytest.ExitCode.OK:
        terminal.write_line(f"{len(lacking)} tests were skipped for a missing server", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
