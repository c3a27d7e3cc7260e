"""Charts of the results of a run: `python -m benchmarks.charts FOLDER` draws them again.

The charts are drawn from results.json alone. Where figures differ by powers of ten they are dots on
a logarithmic axis, because the length of a bar would mean nothing there. leaselock is blue
everywhere, and a caption says what the figures mean.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contestants import TITLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OURS, THEIRS, BARE = "#1b6ca8", "#8f9aa5", "#e0a030"
NAMES = {"limit": "the server's limit"}
Document = dict[str, Any]


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


# --- dots -----------------------------------------------------------------------------------------

Dots = dict[str, dict[str, dict[str, float]]]
"""For each panel and contestant: its figures, by their names."""

WAITS = """How long a process waits for the lock, from asking to getting it: the median, the 99th
percentile and the longest wait. The dashed line is the ideal: every other process has had its turn
once. A median left of the ideal belongs to locks that the releasing process often takes again at
once; the others wait the longer."""
TURNS = """How often per second the lock moves to another process, and how often it is taken at
all. Locks that poll are taken more often than they move: the process that has just released takes
the lock again while the others sleep. leaselock hands it to the next process each time."""
PAIRS = """Wall time of one acquire and its release of a lock without contention. The orange dot
is the least that the store needs for the same work. Compare within a panel only."""
EACH = """Acquire and release of free locks by the tasks or threads of one process. The orange dot
is the limit of the server. redlock (Node) and redsync (Go) keep no queue and draw no token, so the
server has less to do for them."""


def waits(results: Document) -> Any:
    """Chart how long processes wait for a contended lock."""
    found: Dots = {}
    ideals: dict[str, float] = {}
    for table in results.get("redis", ()):
        if table.get("hold"):
            title = f"{table['processes']} processes, each holds it for {table['hold'] * 1e3:g} ms"
            found[title] = {
                name: {
                    "median": one["p50"] * 1e3,
                    "99th percentile": one["p99"] * 1e3,
                    "longest": one["longest"] * 1e3,
                }
                for name, one in table["contestants"].items()
            }
            ideals[title] = min(one["ideal"] for one in table["contestants"].values()) * 1e3
    return dots(found, "Redis: the waits for one lock, in ms (left is better)", WAITS, marks=ideals)


def contention(results: Document) -> Any:
    """Chart how often a contended lock changes its holder."""
    found: Dots = {
        f"{table['processes']} processes, no hold time": {
            name: {"moves to another process": one["transfers"], "is taken": one["rate"]}
            for name, one in table["contestants"].items()
        }
        for table in results.get("redis", ())
        if "hold" in table and not table["hold"]
    }
    return dots(found, "Redis: turns per second (right is better)", TURNS, best=max)


def pairs(results: Document) -> Any:
    """Chart the cost of a free lock, store by store."""
    found: Dots = {}
    for name in ("pair", "redis", "zookeeper", "sql"):
        for table in results.get(name, ()):
            if " pair: " in f" {table['title']}" and "contestants" in table:
                title = table["title"].partition("pair:")[0].strip(" ,") or "one machine"
                found[title] = {
                    name: {"µs": one["seconds"]["median"] * 1e6}
                    for name, one in table["contestants"].items()
                }
    return dots(found, "a free lock: acquire + release, in µs (left is better)", PAIRS)


def each(results: Document) -> Any:
    """Chart the throughput of many tasks and threads of one process."""
    found: Dots = {
        table["title"].removeprefix("Redis, "): {
            name: {"pairs": one["rate"]["median"]} for name, one in table["rates"].items()
        }
        for table in results.get("redis_each", ())
        if "rates" in table
    }
    title = "Redis: pairs per second of one process (right is better)"
    return dots(found, title, EACH, best=max)


def dots(
    groups: Dots,
    title: str,
    caption: str,
    *,
    best: Any = min,
    marks: Mapping[str, float] | None = None,
) -> Any:
    """Draw a panel for each group, the best at the top; all panels of a figure have one axis."""
    from matplotlib.figure import Figure

    groups = {name: values for name, values in groups.items() if values}
    if not groups:
        return None
    columns = 1 if len(groups) == 1 else 2
    rows = -(-len(groups) // columns)
    heights = [
        max(len(values) for values in list(groups.values())[row * columns :][:columns]) + 2.5
        for row in range(rows)
    ]
    figure = Figure(figsize=(6.5 * columns, 0.23 * sum(heights) + 1.2), layout="constrained")
    figure.suptitle(title, fontsize=13, fontweight="bold")
    figure.supxlabel(textwrap.fill(" ".join(caption.split()), 82 * columns), fontsize=9)
    grid = figure.add_gridspec(rows, columns, height_ratios=heights)
    every = [
        figure for values in groups.values() for one in values.values() for figure in one.values()
    ]
    limits = min(every) / 1.5, max(every) * 3
    for number, (name, values) in enumerate(groups.items()):
        panel = figure.add_subplot(grid[divmod(number, columns)])
        _panel(panel, name, values, best, limits)
        if marks:
            panel.axvline(marks[name], color="#555555", linewidth=1, linestyle="--", zorder=0)
    return figure


SHAPES = ("o", "D", "s")


def _panel(
    panel: Any, title: str, values: dict[str, dict[str, float]], best: Any, limits: Sequence[float]
) -> None:
    first = next(iter(values.values()))
    key = "longest" if "longest" in first else next(iter(first))
    order = sorted(values, key=lambda name: values[name][key], reverse=best is min)
    for row, name in enumerate(order):
        color, figures = _color(name), list(values[name].values())
        panel.plot(figures, [row] * len(figures), color=color, linewidth=1.5, alpha=0.6)
        for shape, figure in zip(SHAPES, figures, strict=False):
            panel.plot([figure], [row], shape, color=color, markersize=6)
        panel.annotate(
            f"{max(figures):,.{0 if max(figures) >= 10 else 1}f}",
            (max(figures), row),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    if len(first) > 1:
        for shape, name in zip(SHAPES, first, strict=False):
            panel.plot([], [], shape, color="#777777", markersize=5, label=name)
        panel.legend(
            fontsize=7, frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 0.985)
        )
    panel.set_yticks(range(len(order)), [_label(name) for name in order], fontsize=8)
    for name, text in zip(order, panel.get_yticklabels(), strict=True):
        if _color(name) == OURS:
            text.set(color=OURS, fontweight="bold")
    panel.set_xscale("log")
    panel.set_xlim(*limits)
    panel.xaxis.set_major_formatter(lambda value, place: f"{value:,g}")
    panel.tick_params(axis="x", labelsize=8)
    panel.margins(y=0.06)
    panel.grid(axis="x", alpha=0.25)
    panel.set_title(title, fontsize=10, loc="left", pad=16 if len(first) > 1 else 5)
    panel.spines[["top", "right"]].set_visible(False)


def _label(name: str) -> str:
    return TITLES.get(name, NAMES.get(name, name)).replace("**", "")


def _color(name: str) -> str:
    title = TITLES.get(name, name)
    if title.startswith("**"):
        return OURS
    return BARE if re.search("bare|limit|redis-benchmark", title) else THEIRS


# --- growth ---------------------------------------------------------------------------------------

GROWTH = """How each figure of leaselock changes when its size grows (waiters, tasks, leases, dead
servers): a flat line does not depend on the size. The exponents were fitted: 0 is constant, 1 is
proportional. Only curves with an exponent beyond 0.15 have a name here; results.json has all."""


def growth(results: Document) -> Any:
    """Chart how the figures of leaselock grow with the size."""
    from matplotlib.figure import Figure

    curves = results["growth"][0]["curves"] if "growth" in results else {}
    if not curves:
        return None
    figure = Figure(figsize=(11, 6), layout="constrained")
    figure.suptitle("How the figures of leaselock grow", fontsize=13, fontweight="bold")
    figure.supxlabel(textwrap.fill(" ".join(GROWTH.split()), 140), fontsize=9)
    panel = figure.subplots()
    steep = {text: curve for text, curve in curves.items() if abs(curve["exponent"]) > 0.15}
    for text, curve in curves.items():
        # A logarithmic axis has no zero.
        points = [(x, y) for x, y in zip(curve["x"], curve["y"], strict=True) if y > 0]
        if not points:
            continue
        (size, first), *_ = points
        style: dict[str, Any] = {"color": THEIRS, "linewidth": 1}
        if text in steep:
            color = f"C{list(steep).index(text)}"
            style = {"color": color, "label": f"{text} ({curve['exponent']:+.2f})"}
        relative = [(x / size, y / first) for x, y in points]
        panel.plot(*zip(*relative, strict=True), marker="o", markersize=4, **style)
    panel.set(xscale="log", yscale="log", xlabel="size, relative to the smallest")
    panel.set_ylabel("figure, relative to the smallest size")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(lambda value, place: f"{value:,g}")
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    if steep:
        panel.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


CHARTS: dict[str, Callable[[Document], Any]] = {
    "waits": waits,
    "contention": contention,
    "pairs": pairs,
    "each": each,
    "growth": growth,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
