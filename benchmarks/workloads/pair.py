"""Acquire and release a free lock, with one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contestants import CLASSES, REFERENCE
from benchmarks.figures import ratio
from benchmarks.sampling import ratios, sample_contestants, table_of
from benchmarks.tables import Goal

if TYPE_CHECKING:
    from benchmarks.scale import Scale
    from benchmarks.tables import Table

# Of the statements alone and a pair in memory, which has no statements. Half of filelock's time
# would leave 8 µs for everything but the statements.
MAX_PAIR = 1.1


def run(scale: Scale) -> list[Table]:
    """Measure all contestants on files."""
    samples = sample_contestants(CLASSES, scale)
    over_bare, over_filelock = (
        ratios(samples, other)["leaselock"].median for other in ("sqlite", REFERENCE)
    )
    walls = {name: [one.wall for one in own] for name, own in samples.items()}
    parts = [sum(both) for both in zip(walls["sqlite"], walls["memory"], strict=True)]
    text = "a pair x two bare UPDATEs and a pair in memory"
    goals = [Goal(text, ratio(walls["leaselock"], parts).median, MAX_PAIR)]
    note = f"leaselock takes {over_bare:.2f} x its two bare UPDATEs, {over_filelock:.2f} x filelock"
    table = table_of("pair: acquire and release a free lock, one thread", samples)
    return [table._replace(goals=goals, notes=[note])]
