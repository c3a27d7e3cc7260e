"""Several processes want one lock all the time. Fair and ideal: each waits for all the others.

Exclusion is verified while this is measured: no two holds overlap, and a counter that only one
process at a time may touch comes out right.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contender import Stint
from benchmarks.contestants import CLASSES, REFERENCE, TITLES, contestant
from benchmarks.crew import Member
from benchmarks.figures import jain, percentile, ratio, spread
from benchmarks.tables import Goal, Table

if TYPE_CHECKING:
    from benchmarks.scale import Scale

HOLDS = (0.001, 0.0)
HEAD = [
    *("p99 / ideal", "longest / ideal", "Jain"),
    *("holds/s", "wait p50, ms", "p99, ms", "longest, ms", "of all, ms", "client CPU, µs"),
]
Prepare = Callable[[Path], object]


class Bill(NamedTuple):
    """Who is measured, against whom, and what is asked of the first of them."""

    names: Sequence[str]
    reference: str
    p99_most: float
    longest_most: float
    jain_least: float
    prepare: Prepare = Path.exists


EMBEDDED = Bill([n for n in CLASSES if contestant(n).waits], REFERENCE, 2.0, 4.0, 0.0)


class Round(NamedTuple):
    """One turn of one contestant; seconds."""

    processes: float
    rate: float
    hold: float
    p50: float
    p99: float
    longest: float
    jain: float
    cpu: float

    @property
    def ideal(self) -> float:
        """The wait of everyone, were hand-overs free: as many holds as there are processes."""
        return self.processes * self.hold


def measure(name: str, hold: float, scale: Scale, prepare: Prepare = Path.exists) -> Round:
    """Let the processes contend once, in a folder that is prepared for them."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        prepare(Path(folder))
        arguments = [name, folder, repr(hold), repr(scale.crowd_turn)]
        members = [
            stack.enter_context(Member("benchmarks.contender", arguments))
            for _ in range(scale.crowd)
        ]
        for member in members:
            member.hear()
        for member in members:
            member.tell("go")
        reports = [member.hear() for member in members]
        by_process = [[Stint(*stint) for stint in report["stints"]] for report in reports]
        verify(name, by_process, int.from_bytes(Path(folder, "counter").read_bytes(), "little"))
        return summary(by_process, sum(report["cpu"] for report in reports))


def verify(name: str, by_process: list[list[Stint]], counted: int) -> None:
    """Fail loudly if two held at once."""
    stints = sorted((s for mine in by_process for s in mine), key=lambda stint: stint.granted)
    overlaps = sum(after.granted < before.given_back for before, after in pairwise(stints))
    if overlaps or counted != len(stints):
        raise AssertionError(f"{name}: {overlaps} overlaps, {counted} counted of {len(stints)}")


def summary(by_process: list[list[Stint]], cpu: float) -> Round:
    """The figures of one turn."""
    stints = [stint for mine in by_process for stint in mine]
    waits = sorted(stint.granted - stint.asked for stint in stints)
    held = sum(stint.given_back - stint.granted for stint in stints)
    lasted = max(s.given_back for s in stints) - min(s.asked for s in stints)
    p50, p99, longest = (percentile(waits, percent) / 1e9 for percent in (50, 99, 100))
    return Round(
        processes=len(by_process),
        rate=len(stints) / lasted * 1e9,
        hold=held / len(stints) / 1e9,
        p50=p50,
        p99=p99,
        longest=longest,
        jain=jain([len(mine) for mine in by_process]),
        cpu=cpu / len(stints),
    )


def run(scale: Scale) -> list[Table]:
    """Measure those who can wait, with each length of hold."""
    return [contention(scale, hold, EMBEDDED) for hold in HOLDS]


def contention(scale: Scale, hold: float, bill: Bill) -> Table:
    """One table: all contestants in random order, round by round."""
    rounds: dict[str, list[Round]] = {name: [] for name in bill.names}
    for _ in range(scale.crowd_rounds):
        for name in random.sample(bill.names, len(bill.names)):
            rounds[name].append(measure(name, hold, scale, bill.prepare))
    return table_of(rounds, scale.crowd, hold, bill)


def table_of(rounds: dict[str, list[Round]], crowd: int, hold: float, bill: Bill) -> Table:
    """Medians over the rounds, of the longest waits too; the worst of all stands beside them."""
    base = [one.rate for one in rounds[bill.reference]]
    rows, data = [], {}
    for name, mine in rounds.items():
        middle = Round(*(spread(values).median for values in zip(*mine, strict=True)))
        worst = max(one.longest for one in mine)
        against = ratio([one.rate for one in mine], base).median
        rows.append([TITLES[name], f"{against:.2f}", *_cells(middle, worst, hold)])
        data[name] = middle._asdict() | {"ratio": against, "ideal": middle.ideal, "worst": worst}
    title = f"contention: {crowd} processes, {hold * 1e3:g} ms hold"
    notes = ["in every round no two holds overlapped and the counter came out right"]
    if hold:
        notes.append(f"ideal: {crowd} x the hold as measured")
    goals = _goals(data[bill.names[0]], bill) if hold else []
    head = ["contestant", f"throughput x {bill.reference}", *HEAD]
    return Table(title, head, rows, {"contestants": data}, goals, notes)


def _cells(middle: Round, worst: float, hold: float) -> list[str]:
    over = [f"{wait / middle.ideal:.2f}" for wait in (middle.p99, middle.longest)]
    waits = [f"{wait * 1e3:,.2f}" for wait in (middle.p50, middle.p99, middle.longest, worst)]
    rest = [f"{middle.rate:,.0f}", *waits, f"{middle.cpu * 1e6:,.0f}"]
    return [*(over if hold else ["", ""]), f"{middle.jain:.3f}", *rest]


def _goals(figures: dict[str, float], bill: Bill) -> list[Goal]:
    ideal = figures["ideal"]
    goals = [
        Goal("p99 of the waits / ideal", figures["p99"] / ideal, bill.p99_most),
        Goal("longest wait / ideal", figures["longest"] / ideal, bill.longest_most),
    ]
    if bill.jain_least:
        goals.append(Goal("Jain's unfairness", 1 - figures["jain"], 1 - bill.jain_least))
    return goals
