"""The table as a picture, drawn by matplotlib, which is imported only here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from verification.hazards.outcome import Verdict
from verification.hazards.report import LEGEND, MARKS

if TYPE_CHECKING:
    from pathlib import Path

    from verification.hazards.table import Table

# Distinguishable with red-green colour blindness, too: blue, yellow, orange.
COLOURS = {
    Verdict.SURVIVED: "#9ecae1",
    Verdict.FENCED: "#ffe08a",
    Verdict.FAILED: "#e6550d",
    Verdict.NOTHING: "#f2f2f2",
    Verdict.UNPLAYED: "#ffffff",
    Verdict.ERROR: "#ff00ff",
}
INCH = 0.3


def draw(table: Table, path: Path) -> None:
    """Draw the table into a .svg or .png file; ImportError without matplotlib."""
    figure = require_matplotlib().figure.Figure(
        figsize=(4.6 + INCH * len(table.hazards), 3.2 + INCH * len(table.methods)),
        layout="constrained",
    )
    axes = figure.add_subplot()
    for row, method in enumerate(table.methods):
        for column, hazard in enumerate(table.hazards):
            _cell(axes, column, row, table.of(method, hazard).verdict)
    _label(axes, table)
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, metadata=metadata, dpi=120)


def require_matplotlib() -> Any:
    """Import matplotlib, and make its output reproducible; ImportError without it."""
    try:
        library = import_module("matplotlib")
        import_module("matplotlib.figure")
    except ImportError as error:
        raise ImportError("a picture needs matplotlib: pip install matplotlib") from error
    # The same table produces the same file, and text stays text.
    library.rcParams["svg.hashsalt"] = "leaselock"
    library.rcParams["svg.fonttype"] = "none"
    return library


def _cell(axes: Any, column: int, row: int, verdict: Verdict) -> None:
    colour = COLOURS[verdict]
    axes.fill(
        [column - 0.48, column + 0.48, column + 0.48, column - 0.48],
        [row - 0.48, row - 0.48, row + 0.48, row + 0.48],
        color=colour,
        linewidth=0,
    )
    axes.text(column, row, MARKS[verdict], ha="center", va="center", fontsize=8)


def _label(axes: Any, table: Table) -> None:
    axes.set_xlim(-0.6, len(table.hazards) - 0.4)
    axes.set_ylim(len(table.methods) - 0.4, -0.6)
    axes.set_xticks(range(len(table.hazards)), [h.title for h in table.hazards], fontsize=8)
    names = [method.name for method in table.methods]
    axes.set_yticks(range(len(table.methods)), names, fontsize=8)
    for label, method in zip(axes.get_yticklabels(), table.methods, strict=True):
        label.set_fontweight("bold" if method.default else "normal")
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for label in axes.get_xticklabels():
        label.set(rotation=55, ha="left", rotation_mode="anchor")
    axes.spines[:].set_visible(False)
    found = {outcome.verdict for outcome in table.outcomes.values()}
    legend = [f"{MARKS[verdict]}  {text}" for verdict, text in LEGEND.items() if verdict in found]
    axes.set_xlabel("\n".join(["bold: the defaults of leaselock", *legend]), fontsize=8, loc="left")
