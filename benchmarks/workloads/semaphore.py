"""Throughput of a semaphore: processes that take one permit each, half as many permits.

Each contestant is measured on its own store. It is verified that there are never more holders than
permits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contender_group import ContenderGroup, ContentionSample, summary, verify_limit
from benchmarks.contestants import SEMAPHORES
from benchmarks.figures import spread
from benchmarks.mode_stores import prepared
from benchmarks.tables import Table
from benchmarks.workloads.contention import alternate

if TYPE_CHECKING:
    from benchmarks.mode_stores import Preparation
    from benchmarks.scale import Scale
    from benchmarks.workloads.contention import Samples

HOLDS = (0.01, 0.0)
HEAD = [
    *("contestant", "longest / ideal", "Jain", "grants/s"),
    *("wait p50, ms", "p99, ms", "longest, ms", "of all, ms", "client CPU, µs"),
]


def run(scale: Scale) -> list[Table]:
    """Measure all contestants that have a semaphore."""
    with prepared(SEMAPHORES) as preparation:
        return measure(preparation, scale)


def measure(preparation: Preparation, scale: Scale) -> list[Table]:
    """Measure these contestants, with each hold time."""
    permits = scale.contenders // 2
    modes = [str(permits)] * scale.contenders
    groups = [ContenderGroup(name, modes, prepare) for name, prepare in preparation.items()]

    def sample(group: ContenderGroup, hold: float) -> ContentionSample:
        by_process, cpu = group.contend(hold, scale.contention_seconds)
        every = ((one, 1) for mine in by_process for one in mine)
        verify_limit(group.name, every, permits)
        return summary(by_process, cpu)

    by_hold = alternate(groups, HOLDS, scale.contention_rounds, sample)
    return [table_of(rounds, scale, permits, hold) for hold, rounds in by_hold.items()]


def table_of(rounds: Samples, scale: Scale, permits: int, hold: float) -> Table:
    """Return the medians of all figures over the rounds, and the longest wait of all rounds."""
    rows, data = [], {}
    for name, mine in rounds.items():
        middle = ContentionSample(*(spread(values).median for values in zip(*mine, strict=True)))
        ideal = middle.ideal / permits
        worst = max(one.longest for one in mine)
        row = [SEMAPHORES[name], f"{middle.longest / ideal:.2f}" if hold else ""]
        row += [f"{middle.jain:.3f}", f"{middle.rate:,.0f}"]
        row += [f"{wait * 1e3:,.2f}" for wait in (middle.p50, middle.p99, middle.longest, worst)]
        rows.append([*row, f"{middle.cpu * 1e6:,.0f}"])
        figures = ("rate", "hold", "p50", "p99", "longest", "jain", "cpu")
        data[name] = {figure: getattr(middle, figure) for figure in figures}
        data[name] |= {"ideal": ideal, "worst": worst}
    count = f"{permits} permit{'s' if permits > 1 else ''}"
    title = f"semaphore: {scale.contenders} processes, {count}, {hold * 1e3:g} ms hold"
    notes = ["in every round there were never more holders than permits"]
    if hold:
        notes.append(f"ideal: {scale.contenders} / {permits} x the measured hold time")
    extent = {"processes": scale.contenders, "permits": permits, "hold": hold}
    return Table(title, HEAD, rows, {"contestants": data, **extent}, [], notes)
