"""A storm to look at: who held, who waited, and what befell whom, second by second.

matplotlib draws it, and is needed for nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock.errors import LeaselockError

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock.testing.chaos.storm import Report, Struck
    from leaselock.testing.holds import Hold

BILLION = 1e9
SPAN = 6.0
COLOURS = ("#1b6ca8", "#2a9d5c", "#c77d0a", "#8e5ea2")
WAITING = "#d9d9d9"
FAULT = "#c0392b"


class Row(NamedTuple):
    """One thread or task of a worker."""

    pid: int
    task: int


def plots() -> Any:
    """matplotlib, drawing into files only; LeaselockError where it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise LeaselockError("a picture needs matplotlib: pip install matplotlib") from error
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    return plt


def draw(report: Report, path: Path, span: float = SPAN) -> None:
    """Write the timeline of the *span* seconds with the most faults, as PNG or SVG."""
    plt = plots()
    begin = busiest(report.struck, span)
    holds = seen(report, begin, begin + round(span * BILLION))
    rows = {row: n for n, row in enumerate(sorted({of(hold) for hold, _ in holds}))}
    figure, axes = plt.subplots(figsize=(14, 2.0 + 0.28 * len(rows)))
    draw_faults(axes, report.struck, rows, begin, span)
    for hold, colour in holds:
        draw_hold(axes, hold, rows[of(hold)], begin, colour)
    axes.set_yticks(list(rows.values()), [f"{row.pid}/{row.task % 100000}" for row in rows])
    axes.set_xlim(0.0, span)
    axes.set_xlabel("seconds; a colour for each lock: held; grey: waited; red: struck")
    axes.set_title(f"{report.stage}, seed {report.seed}: {len(report.struck)} faults in all")
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def of(hold: Hold) -> Row:
    """The row that a hold belongs to."""
    return Row(hold.process.pid, hold.task)


def busiest(struck: tuple[Struck, ...], span: float) -> int:
    """Where the most kinds of fault lie within *span* seconds."""
    if not struck:
        return 0
    width = span * BILLION

    def kinds(first: Struck) -> int:
        return len({s.fault for s in struck if 0 <= s.began - first.began < width})

    return max(struck, key=kinds).began - round(0.2 * BILLION)


def seen(report: Report, begin: int, end: int) -> list[tuple[Hold, str]]:
    """The holds and waits within the picture, with the colour of their lock."""
    found: list[tuple[Hold, str]] = []
    for number, lock in enumerate(report.history.locks.values()):
        colour = COLOURS[number % len(COLOURS)]
        near = [hold for hold in lock.holds if hold.begun < end and hold.believed_until > begin]
        found.extend((hold, colour) for hold in near)
    return found


def draw_hold(axes: Any, hold: Hold, row: int, begin: int, colour: str) -> None:
    """A thin bar for the wait, a thick one for the belief."""
    at = (hold.begun - begin) / BILLION
    axes.barh(row, (hold.waited_until - hold.begun) / BILLION, 0.25, at, color=WAITING)
    if hold.core is not None:
        start, end = hold.core
        axes.barh(row, (end - start) / BILLION, 0.8, (start - begin) / BILLION, color=colour)


def draw_faults(
    axes: Any, struck: tuple[Struck, ...], rows: dict[Row, int], begin: int, span: float
) -> None:
    """A red span in the rows of the victim, or through all rows when the store was struck."""
    for fault in struck:
        at = (fault.began - begin) / BILLION
        if not 0.0 <= at < span:
            continue
        long = max(0.01, (fault.ended - fault.began) / BILLION)
        mine = [n for row, n in rows.items() if row.pid == fault.pid]
        if mine:
            axes.broken_barh([(at, long)], (min(mine) - 0.5, len(mine)), color=FAULT, alpha=0.35)
        else:
            axes.axvspan(at, at + long, color=FAULT, alpha=0.12)
        height = max(mine) + 0.5 if mine else len(rows) - 0.5
        axes.text(at, height, fault.fault, fontsize=7, color=FAULT, rotation=30, va="bottom")
