"""Acquire and release a lock that the same thread holds already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contestants import CLASSES, contestant, present
from benchmarks.figures import spread
from benchmarks.sampling import SampleSetup, sample_contestants, table_of
from benchmarks.tables import Goal, Table

if TYPE_CHECKING:
    from benchmarks.contestants import Contestant
    from benchmarks.scale import Scale

MAX_MICROSECONDS = 5.0


def hold(lock: Contestant) -> None:
    """Acquire the lock; closing the client releases it."""
    lock.acquire()


def run(scale: Scale) -> list[Table]:
    """Measure all reentrant contestants."""
    names = [name for name in present(CLASSES) if contestant(name).reentrant]
    samples = sample_contestants(names, scale, SampleSetup(before=hold))
    median = spread([sample.wall for sample in samples["leaselock"]]).median
    goal = Goal("a nested pair, µs", median * 1e6, MAX_MICROSECONDS)
    table = table_of("nested: acquire and release within a hold, one thread", samples)
    return [table._replace(goals=[goal])]
