"""The lock is held already, and the same thread takes it once more and gives it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contestants import CLASSES, contestant, present
from benchmarks.figures import spread
from benchmarks.tables import Goal, Table
from benchmarks.turns import Ground, table_of, take_turns

if TYPE_CHECKING:
    from benchmarks.contestants import Contestant
    from benchmarks.scale import Scale

MOST_MICROSECONDS = 5.0


def hold(lock: Contestant) -> None:
    """Be the holder; closing gives it back."""
    lock.acquire()


def run(scale: Scale) -> list[Table]:
    """Measure those who are reentrant."""
    names = [name for name in present(CLASSES) if contestant(name).reentrant]
    turns = take_turns(names, scale, Ground(before=hold))
    median = spread([turn.wall for turn in turns["leaselock"]]).median
    goal = Goal("a nested pair, µs", median * 1e6, MOST_MICROSECONDS)
    table = table_of("nested: acquire and release within a hold, one thread", turns)
    return [table._replace(goals=[goal])]
