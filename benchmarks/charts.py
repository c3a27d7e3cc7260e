"""Charts of the results of a run: `python -m benchmarks.charts FOLDER` draws them again.

Both are bars on a linear axis, drawn from results.json alone. leaselock is blue, a floor orange.
Everything else is a table on the page: the module `page`.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contestants import TITLES
from benchmarks.results import contention_of, floors, pair_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OURS, THEIRS, FLOOR = "#1b6ca8", "#8f9aa5", "#e0a030"
# A bar that is this many times as long as ours would hide the others; the caption names it.
LONGEST_BAR = 5.0
Document = dict[str, Any]

WAITS = """The longest time from asking for the lock to getting it. The dashed line is the ideal:
every other process has had its turn once."""
PAIRS = """Acquire and release of a lock that nobody else wants. The orange bars are floors: the
requests of leaselock, sent from Python without a lock library."""


def draw(document: Document, folder: Path) -> None:
    """Draw all charts for which there are numbers."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "leaselock"
    for name, chart in CHARTS.items():
        if figure := chart(document["results"]):
            figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})


def main(folder: str) -> None:
    """Draw the charts of an earlier run."""
    draw(json.loads(Path(folder, "results.json").read_text("utf-8")), Path(folder))


def waits(results: Document) -> Any:
    """Chart the longest wait of the processes that contend for one lock."""
    table = contention_of(results, hold=0.001)
    if table is None:
        return None
    contestants = table["contestants"]
    title = f"Redis: longest wait of {table['processes']} processes, 1 ms each, in ms"
    values = {name: one["longest"] * 1e3 for name, one in contestants.items()}
    ideal = min(one["ideal"] for one in contestants.values()) * 1e3
    return bars({title: values}, WAITS, mark=ideal)


def pairs(results: Document) -> Any:
    """Chart the cost of a free lock on Redis, for threads and for asyncio."""
    panels = {}
    for title, name in (("Redis, one thread", "redis"), ("Redis, one task of asyncio", "aio")):
        if contestants := pair_of(results, name):
            panels[f"{title}: a free lock, in µs"] = {
                other: one["seconds"]["median"] * 1e6 for other, one in contestants.items()
            }
    return bars(panels, PAIRS)


def bars(panels: Mapping[str, dict[str, float]], caption: str, mark: float = 0.0) -> Any:
    """Draw a panel of bars for each group, the shortest at the top, all on one linear axis."""
    from matplotlib.figure import Figure

    if not panels:
        return None
    cut = {title: _cut(values) for title, values in panels.items()}
    notes = [caption, *(note for _, note in cut.values() if note)]
    rows = max(len(values) for values, _ in cut.values())
    figure = Figure(figsize=(6.5 * len(panels), 0.28 * rows + 1.6), layout="constrained")
    text = " ".join(" ".join(notes).split())
    figure.supxlabel(textwrap.fill(text, 85 * len(panels)), fontsize=9)
    longest = max(max(values.values()) for values, _ in cut.values())
    for panel, (title, (values, _)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], cut.items(), strict=True
    ):
        _panel(panel, title, values)
        panel.set_xlim(0, longest * 1.15)
        if mark:
            panel.axvline(mark, color="#555555", linewidth=1, linestyle="--")
    return figure


def _cut(values: dict[str, float]) -> tuple[dict[str, float], str]:
    """Return the bars that are drawn in a panel with a floor, and a note that names the others."""
    if not floors() & values.keys():
        return values, ""
    most = LONGEST_BAR * min(value for name, value in values.items() if _color(name) == OURS)
    left_out = [f"{_label(name)} ({value:,.0f})" for name, value in values.items() if value > most]
    note = f"Not drawn: {', '.join(left_out)}." if left_out else ""
    return {name: value for name, value in values.items() if value <= most}, note


def _panel(panel: Any, title: str, values: dict[str, float]) -> None:
    order = sorted(values, key=values.__getitem__, reverse=True)
    lengths, colors = [values[name] for name in order], [_color(name) for name in order]
    drawn = panel.barh(range(len(order)), lengths, color=colors, height=0.65)
    panel.bar_label(drawn, [f"{length:,.0f}" for length in lengths], padding=4, fontsize=8)
    panel.set_yticks(range(len(order)), [_label(name) for name in order], fontsize=8)
    for name, text in zip(order, panel.get_yticklabels(), strict=True):
        if _color(name) == OURS:
            text.set(color=OURS, fontweight="bold")
    panel.xaxis.set_major_formatter(lambda value, place: f"{value:,g}")
    panel.tick_params(axis="x", labelsize=8)
    panel.set_title(title, fontsize=10, loc="left")
    panel.spines[["top", "right"]].set_visible(False)


def _label(name: str) -> str:
    return TITLES[name].replace("**", "")


def _color(name: str) -> str:
    if TITLES[name].startswith("**"):
        return OURS
    return FLOOR if name in floors() else THEIRS


CHARTS: dict[str, Callable[[Document], Any]] = {"waits": waits, "pairs": pairs}

if __name__ == "__main__":
    main(*sys.argv[1:])
