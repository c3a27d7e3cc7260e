"""Statistics: medians, quartiles, ratios, percentiles and fairness."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Spread(NamedTuple):
    """A median and its quartiles."""

    median: float
    low: float
    high: float

    def show(self, scale: float = 1.0, digits: int = 1) -> str:
        """Return the median and the quartiles as text, multiplied by *scale*."""
        median, low, high = (f"{value * scale:,.{digits}f}" for value in self)
        return f"{median} ({low} to {high})"


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the quartiles of *values*."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def ratio(values: Sequence[float], reference: Sequence[float]) -> Spread:
    """Return the ratios to the reference of the same round, so that slow rounds cancel out."""
    return spread([mine / theirs for mine, theirs in zip(values, reference, strict=True)])


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of sorted *values*; 0 if there are none."""
    rank = -int(-len(values) * percent // 100)
    return values[max(0, min(rank, len(values)) - 1)] if values else 0.0


def jain(counts: Sequence[int]) -> float:
    """Return Jain's fairness index: 1 if all counts are equal, 1/n if one has everything."""
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 0.0
