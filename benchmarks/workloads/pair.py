"""A free lock is taken and given back, by one thread, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contestants import CLASSES, REFERENCE
from benchmarks.tables import Goal, Table
from benchmarks.turns import ratios, table_of, take_turns

if TYPE_CHECKING:
    from benchmarks.scale import Scale

MOST = 0.5


def run(scale: Scale) -> list[Table]:
    """Measure all contestants."""
    turns = take_turns(list(CLASSES), scale)
    over_floor = ratios(turns, "sqlite")["holdfast"].median
    goal = Goal(f"a pair x {REFERENCE}", ratios(turns)["holdfast"].median, MOST)
    note = f"holdfast takes {over_floor:.2f} x the time of the two UPDATEs that it makes"
    table = table_of("pair: acquire and release a free lock, one thread", turns)
    return [table._replace(goals=[goal], notes=[note])]
