"""Charts of the results of a run: `python -m benchmarks.charts FOLDER` draws them again.

The charts are drawn from results.json alone. Each title says whether shorter or longer is better.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contestants import TITLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OURS, THEIRS, BARE = "#1b6ca8", "#b9c2ca", "#e0a030"
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


# --- bars -----------------------------------------------------------------------------------------


def pairs(results: Document) -> Any:
    """Chart the cost of a free lock, store by store."""
    found = {}
    for name in ("pair", "redis", "zookeeper", "sql"):
        for table in results.get(name, ()):
            if " pair: " in f" {table['title']}" and "contestants" in table:
                figures = table["contestants"]
                title = table["title"].partition("pair:")[0].strip(" ,") or "one machine"
                found[title] = {
                    name: one["seconds"]["median"] * 1e6 for name, one in figures.items()
                }
    return bars(found, "acquire + release of a free lock, µs (shorter is better)", best=min)


def contention(results: Document) -> Any:
    """Chart the throughput of contending processes that hold the lock for no time."""
    tables = [table for table in results.get("redis", ()) if "hold" in table and not table["hold"]]
    found = {
        f"Redis, {table['processes']} processes": {
            name: one["rate"] for name, one in table["contestants"].items()
        }
        for table in tables
    }
    title = "holds of one contended lock per second (longer is better; see also the waits)"
    return bars(found, title, best=max)


def each(results: Document) -> Any:
    """Chart the throughput of many tasks and threads of one process."""
    found = {
        table["title"]: {name: one["rate"]["median"] for name, one in table["rates"].items()}
        for table in results.get("redis_each", ())
        if "rates" in table
    }
    return bars(found, "pairs per second of one process (longer is better)", best=max)


def bars(groups: Mapping[str, Mapping[str, float]], title: str, best: Any) -> Any:
    """Draw a panel for each group, on a logarithmic scale, the best at the top."""
    from matplotlib.figure import Figure

    if not groups:
        return None
    rows = -(-len(groups) // 2)
    tallest = max(len(values) for values in groups.values())
    figure = Figure(figsize=(13, rows * (0.27 * tallest + 0.9)), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(rows, 2, squeeze=False).flat
    for panel, (name, values) in zip(panels, groups.items(), strict=False):
        _panel(panel, name, values, sorted(values, key=values.__getitem__, reverse=best is min))
    for panel in list(figure.axes)[len(groups) :]:
        panel.set_axis_off()
    return figure


def _panel(panel: Any, name: str, values: Mapping[str, float], order: Sequence[str]) -> None:
    numbers = [values[name] for name in order]
    drawn = panel.barh([_label(name) for name in order], numbers, color=[_color(w) for w in order])
    panel.bar_label(drawn, [f"{number:,.0f}" for number in numbers], padding=3, fontsize=8)
    panel.set_xscale("log")
    panel.set_xlim(min(numbers) / 3, max(numbers) * 4)
    panel.set_title(name, fontsize=10)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def _label(name: str) -> str:
    return TITLES.get(name, NAMES.get(name, name)).replace("**", "")


def _color(name: str) -> str:
    title = TITLES.get(name, name)
    if title.startswith("**"):
        return OURS
    return BARE if re.search("bare|limit|redis-benchmark", title) else THEIRS


# --- curves ---------------------------------------------------------------------------------------


def waits(results: Document) -> Any:
    """Chart the longest waits by the number of processes."""
    from matplotlib.figure import Figure

    tables = [table for table in results.get("redis", ()) if table.get("hold")]
    if not tables:
        return None
    holds = sorted({table["hold"] for table in tables})
    figure = Figure(figsize=(13, 5), layout="constrained")
    figure.suptitle("Redis: 99th percentile of the waits, relative to the ideal (1 is the optimum)")
    for panel, hold in zip(figure.subplots(1, len(holds), squeeze=False)[0], holds, strict=True):
        _curves(panel, [table for table in tables if table["hold"] == hold])
        panel.set_title(f"each process holds the lock for {hold * 1e3:g} ms", fontsize=10)
    figure.axes[-1].legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _curves(panel: Any, tables: Sequence[Document]) -> None:
    names = list(dict.fromkeys(name for table in tables for name in table["contestants"]))
    for number, name in enumerate(names):
        points = [
            (table["processes"], one["p99"] / one["ideal"])
            for table in tables
            if (one := table["contestants"].get(name))
        ]
        ours = _color(name) == OURS
        style = {"color": OURS, "linewidth": 3} if ours else {"color": f"C{number}", "alpha": 0.7}
        panel.plot(*zip(*points, strict=True), marker="o", label=_label(name), **style)
    panel.set(xscale="log", yscale="log", xlabel="processes")
    panel.grid(alpha=0.3)


def growth(results: Document) -> Any:
    """Chart how the figures of leaselock grow with the size."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if "growth" not in results:
        return None
    figure = Figure(figsize=(14, 6), layout="constrained")
    panel = figure.subplots()
    panel.set_prop_cycle(color=[mpl.colormaps["tab20"](number) for number in range(20)])
    for text, curve in results["growth"][0]["curves"].items():
        first = next((y for y in curve["y"] if y > 0), 1.0)
        scaled = [y / first for y in curve["y"]]
        label = f"{text} ({curve['exponent']:+.2f})"
        panel.plot(curve["x"], scaled, marker="o", label=label)
    panel.set(xscale="log", yscale="log", ylabel="relative to the smallest size")
    panel.set_title("growth of the figures of leaselock (fitted exponents in brackets)")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


CHARTS: dict[str, Callable[[Document], Any]] = {
    "pairs": pairs,
    "contention": contention,
    "waits": waits,
    "each": each,
    "growth": growth,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
