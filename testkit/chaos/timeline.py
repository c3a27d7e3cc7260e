"""A timeline of a chaos run: who held, who waited, and which faults occurred, second by second.

It is drawn by matplotlib, which nothing else needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock.errors import LeaselockError

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock.testing.history import Hold
    from testkit.chaos.run import InjectedFault, Report

BILLION = 1e9
SPAN = 6.0
LOCK_COLOURS = ("#1b6ca8", "#2a9d5c", "#c77d0a", "#8e5ea2")
WAITING = "#d9d9d9"
FAULT = "#c0392b"


class Row(NamedTuple):
    """One thread or task of a worker."""

    pid: int
    task: int


def require_matplotlib() -> Any:
    """Return matplotlib.pyplot, drawing into files only; LeaselockError if it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise LeaselockError("a picture needs matplotlib: pip install matplotlib") from error
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    return plt


def draw(report: Report, path: Path, span: float = SPAN) -> None:
    """Write the timeline of the *span* seconds with the most kinds of fault, as PNG or SVG."""
    plt = require_matplotlib()
    begin = busiest_moment(report.faults, span)
    holds = visible_holds(report, begin, begin + round(span * BILLION))
    rows = {row: n for n, row in enumerate(sorted({row_of(hold) for hold, _ in holds}))}
    figure, axes = plt.subplots(figsize=(14, 2.0 + 0.28 * len(rows)))
    draw_faults(axes, report.faults, rows, begin, span)
    for hold, colour in holds:
        draw_hold(axes, hold, rows[row_of(hold)], begin, colour)
    axes.set_yticks(list(rows.values()), [f"{row.pid}/{row.task % 100000}" for row in rows])
    axes.set_xlim(0.0, span)
    axes.set_xlabel("seconds; one colour for each lock: held; grey: waiting; red: fault")
    axes.set_title(f"{report.target}, seed {report.seed}: {len(report.faults)} faults in all")
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def row_of(hold: Hold) -> Row:
    """Return the row that a hold belongs to."""
    return Row(hold.process.pid, hold.task)


def busiest_moment(faults: tuple[InjectedFault, ...], span: float) -> int:
    """Return the start of the *span* seconds with the most kinds of fault."""
    if not faults:
        return 0
    width = span * BILLION

    def kinds(first: InjectedFault) -> int:
        return len({fault.name for fault in faults if 0 <= fault.began - first.began < width})

    return max(faults, key=kinds).began - round(0.2 * BILLION)


def visible_holds(report: Report, begin: int, end: int) -> list[tuple[Hold, str]]:
    """Return the holds and waits between *begin* and *end*, with the colour of their lock."""
    found: list[tuple[Hold, str]] = []
    for number, lock in enumerate(report.history.locks.values()):
        colour = LOCK_COLOURS[number % len(LOCK_COLOURS)]
        near = [hold for hold in lock.holds if hold.began < end and hold.certain_until > begin]
        found.extend((hold, colour) for hold in near)
    return found


def draw_hold(axes: Any, hold: Hold, row: int, begin: int, colour: str) -> None:
    """Draw a thin bar for the wait and a thick one for the hold."""
    at = (hold.began - begin) / BILLION
    axes.barh(row, (hold.answered - hold.began) / BILLION, 0.25, at, color=WAITING)
    if hold.certain_interval is not None:
        start, end = hold.certain_interval
        axes.barh(row, (end - start) / BILLION, 0.8, (start - begin) / BILLION, color=colour)


def draw_faults(
    axes: Any, faults: tuple[InjectedFault, ...], rows: dict[Row, int], begin: int, span: float
) -> None:
    """Draw a red span in the rows of the affected worker, or in all rows for a store's fault."""
    for fault in faults:
        at = (fault.began - begin) / BILLION
        if not 0.0 <= at < span:
            continue
        width = max(0.01, (fault.ended - fault.began) / BILLION)
        affected = [n for row, n in rows.items() if row.pid == fault.pid]
        if affected:
            bars = (min(affected) - 0.5, len(affected))
            axes.broken_barh([(at, width)], bars, color=FAULT, alpha=0.35)
        else:
            axes.axvspan(at, at + width, color=FAULT, alpha=0.12)
        height = max(affected) + 0.5 if affected else len(rows) - 0.5
        axes.text(at, height, fault.name, fontsize=7, color=FAULT, rotation=30, va="bottom")
