"""Acquire and release a free lock, with one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contestants import CLASSES, REFERENCE
from benchmarks.sampling import ratio_goal, ratios, sample_contestants, table_of

if TYPE_CHECKING:
    from benchmarks.scale import Scale
    from benchmarks.tables import Table

MAX_PAIR = 0.5


def run(scale: Scale) -> list[Table]:
    """Measure all contestants on files."""
    samples = sample_contestants(CLASSES, scale)
    over_bare = ratios(samples, "sqlite")["leaselock"].median
    goals = ratio_goal(samples, f"a pair x {REFERENCE}", "leaselock", REFERENCE, MAX_PAIR)
    note = f"leaselock takes {over_bare:.2f} x the time of its two bare UPDATE statements"
    table = table_of("pair: acquire and release a free lock, one thread", samples)
    return [table._replace(goals=goals, notes=[note])]
