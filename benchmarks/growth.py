"""How each figure grows with what it depends on: the exponent of a power law through all sizes.

Law: a line through the logarithms, by least squares. 0 is "it does not grow", 1 "in proportion".
"""

from __future__ import annotations

import statistics
from math import log
from typing import TYPE_CHECKING

from benchmarks.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of log y over log x, of those that are above 0."""
    points = [(log(a), log(b)) for a, b in zip(x, y, strict=True) if a > 0 and b > 0]
    if len({a for a, _ in points}) < 2:
        return float("nan")
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def table_of(tables: Iterable[Table]) -> Table:
    """Of every curve that the workloads left."""
    rows, data = [], {}
    for table in tables:
        for text, curve in table.data.get("growth", {}).items():
            if len(set(curve["x"])) < 2:
                continue
            grows = exponent(curve["x"], curve["y"])
            data[text] = curve | {"exponent": grows}
            rows.append([text, f"{grows:+.2f}", f"{curve['x'][0]:,.0f} to {curve['x'][-1]:,.0f}"])
    title = "growth: the exponent with which a figure of leaselock grows"
    notes = ["0: it does not grow; 1: in proportion"]
    return Table(title, ["figure", "exponent", "from, to"], rows, {"curves": data}, [], notes)
