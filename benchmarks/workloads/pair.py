"""A free lock is taken and given back, by one thread, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contestants import CLASSES, REFERENCE
from benchmarks.turns import goal, ratios, table_of, take_turns

if TYPE_CHECKING:
    from benchmarks.scale import Scale
    from benchmarks.tables import Table

MOST = 0.5


def run(scale: Scale) -> list[Table]:
    """Measure all contestants."""
    turns = take_turns(CLASSES, scale)
    over_floor = ratios(turns, "sqlite")["leaselock"].median
    goals = goal(turns, f"a pair x {REFERENCE}", "leaselock", REFERENCE, MOST)
    note = f"leaselock takes {over_floor:.2f} x the time of the two UPDATEs that it makes"
    table = table_of("pair: acquire and release a free lock, one thread", turns)
    return [table._replace(goals=goals, notes=[note])]
