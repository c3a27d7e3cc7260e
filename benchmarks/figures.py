"""From many measurements to the few numbers of a table."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Spread(NamedTuple):
    """The median, and the quarter points around it."""

    median: float
    low: float
    high: float

    def show(self, scale: float = 1.0, digits: int = 1) -> str:
        """The median and its spread in the unit that *scale* makes."""
        median, low, high = (f"{value * scale:,.{digits}f}" for value in self)
        return f"{median} ({low} to {high})"


def spread(values: Sequence[float]) -> Spread:
    """The median and the quarter points of *values*."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def ratio(values: Sequence[float], reference: Sequence[float]) -> Spread:
    """Round by round against the reference of the same round, so that slow rounds cancel out."""
    return spread([mine / theirs for mine, theirs in zip(values, reference, strict=True)])


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of sorted *values*; 0 of none."""
    rank = -int(-len(values) * percent // 100)
    return values[max(0, min(rank, len(values)) - 1)] if values else 0.0


def jain(counts: Sequence[int]) -> float:
    """Jain's index of fairness: 1 when all have the same, 1/n when one has everything."""
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 0.0
