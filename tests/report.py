"""The end of a run: the slowest tests, what was skipped and why, seeds, the start of servers.

A plugin of pytest. With --dist the processes that run tests send their figures to the one that
reports.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING

import pytest
from testkit.servers.costs import STARTS
from tests import tiers
from tests.randomness import described
from tests.tiers import LEFT_OUT

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

SLOWEST = 10
FIGURES = "starts of servers"
TO_TEST = "left to make test"


class Figures:
    """What the reporting process adds up."""

    def __init__(self) -> None:
        self.starts: defaultdict[str, list[float]] = defaultdict(list)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.skipped: Counter[str] = Counter()
        # The tests that `make check` leaves to `make test`, by their folders.
        self.left_out: Counter[str] = Counter()

    def add_starts(self, starts: dict[str, list[float]]) -> None:
        """Those of one process."""
        for kind, seconds in starts.items():
            self.starts[kind] += seconds

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One step of a test."""
        self.seconds[report.nodeid] += report.duration
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """A process that ran tests has ended."""
        output = getattr(node, "workeroutput", {})
        self.add_starts(json.loads(output.get(FIGURES, "{}")))
        # Each process has collected the same tests.
        self.left_out = Counter(json.loads(output.get(TO_TEST, "{}"))) or self.left_out


FIGURES_KEY = pytest.StashKey[Figures]()


def pytest_configure(config: pytest.Config) -> None:
    """Add up, unless this process only runs tests for another."""
    if not hasattr(config, "workerinput"):
        config.stash[FIGURES_KEY] = figures = Figures()
        config.pluginmanager.register(figures)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the figures, or add them up here."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[FIGURES] = json.dumps(STARTS)
        output[TO_TEST] = json.dumps(session.config.stash.get(LEFT_OUT, {}))
    else:
        figures = session.config.stash[FIGURES_KEY]
        figures.add_starts(STARTS)
        figures.left_out = session.config.stash.get(LEFT_OUT, Counter()) or figures.left_out


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Say it."""
    figures = config.stash[FIGURES_KEY]
    if len(figures.seconds) <= SLOWEST:
        return
    say = terminalreporter.write_line
    terminalreporter.section(f"tier: {config.getoption('--tier')}")
    total = sum(figures.seconds.values())
    say(f"{len(figures.seconds)} tests, {total:.0f} seconds of test time; the slowest:")
    for name, seconds in sorted(figures.seconds.items(), key=itemgetter(1))[: -SLOWEST - 1 : -1]:
        say(f"  {seconds:6.1f} s  {name}")
    say("skipped:" + ("" if figures.skipped else " nothing"))
    for reason, count in sorted(figures.skipped.items()):
        say(f"  {count:6}    {reason}")
    say("servers started:" + ("" if figures.starts else " none"))
    for kind, starts in sorted(figures.starts.items()):
        mean = sum(starts) / len(starts)
        say(f"  {len(starts):6}    {kind}: {sum(starts):.1f} s, {mean:.2f} s each")
    if tiers.running == "check":
        left = figures.left_out
        say(f"left to `make test`, since they need a server: {left.total()} tests")
        for folder, count in sorted(left.items()):
            say(f"  {count:6}    {folder}")
    say(described(config))
