"""Growth of each figure with the size: the exponent of a power law fitted to all sizes.

The fit is a least-squares line through the logarithms. Exponent 0: constant; 1: proportional.
"""

from __future__ import annotations

import statistics
from math import log
from typing import TYPE_CHECKING

from benchmarks.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the slope of log y over log x, for positive values."""
    points = [(log(a), log(b)) for a, b in zip(x, y, strict=True) if a > 0 and b > 0]
    if len({a for a, _ in points}) < 2:
        return float("nan")
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def table_of(tables: Iterable[Table]) -> Table:
    """Return the exponents of all growth curves in *tables*."""
    rows, data = [], {}
    for table in tables:
        for text, curve in table.data.get("growth", {}).items():
            if len(set(curve["x"])) < 2:
                continue
            grows = exponent(curve["x"], curve["y"])
            data[text] = curve | {"exponent": grows}
            rows.append([text, f"{grows:+.2f}", f"{curve['x'][0]:,.0f} to {curve['x'][-1]:,.0f}"])
    title = "growth: the exponent of each figure of leaselock"
    notes = ["0: constant; 1: proportional"]
    return Table(title, ["figure", "exponent", "range"], rows, {"curves": data}, [], notes)
