"""One thread at a time: contestants take turns in random order, and each turn is one number."""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contestants import REFERENCE, TITLES, contestant
from benchmarks.figures import ratio, spread
from benchmarks.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.contestants import Contestant
    from benchmarks.figures import Spread
    from benchmarks.scale import Scale

WARM_UP = 20


class Turn(NamedTuple):
    """Seconds for one operation, by the clock and of the processor."""

    wall: float
    cpu: float


def pairs(lock: Contestant, count: int) -> Turn:
    """Acquire and release, *count* times."""
    acquire, release = lock.acquire, lock.release
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        acquire()
        release()
    return Turn((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


def _count(lock: Contestant, seconds: float) -> int:
    """How many pairs fill a turn."""
    pairs(lock, WARM_UP)
    return max(1, round(seconds / pairs(lock, WARM_UP).wall))


def take_turns(
    names: Sequence[str],
    scale: Scale,
    before: Callable[[Contestant], None] | None = None,
    prepare: Callable[[Path], object] | None = None,
) -> Mapping[str, list[Turn]]:
    """The turns of each contestant, round by round; *before* brings each into position, *prepare*
    the folder that they share.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        if prepare is not None:
            prepare(Path(folder))
        locks = {n: stack.enter_context(closing(contestant(n)(Path(folder)))) for n in names}
        for lock in locks.values():
            if before is not None:
                before(lock)
        counts = {name: _count(lock, scale.turn) for name, lock in locks.items()}
        turns: dict[str, list[Turn]] = {name: [] for name in names}
        for _ in range(scale.rounds):
            for name in random.sample(names, len(names)):
                turns[name].append(pairs(locks[name], counts[name]))
        return turns


def ratios(turns: Mapping[str, list[Turn]], reference: str = REFERENCE) -> dict[str, Spread]:
    """Each contestant's time as a multiple of the reference's, round by round."""
    base = [turn.wall for turn in turns[reference]]
    return {name: ratio([turn.wall for turn in mine], base) for name, mine in turns.items()}


def table_of(title: str, turns: Mapping[str, list[Turn]], reference: str = REFERENCE) -> Table:
    """The table of a workload of turns, the ratios first."""
    against = ratios(turns, reference)
    rows, data = [], {}
    for name, mine in turns.items():
        wall, cpu = spread([turn.wall for turn in mine]), spread([turn.cpu for turn in mine])
        compared = against[name].show(digits=3)
        rows.append([TITLES[name], compared, wall.show(1e6, 2), cpu.show(1e6, 2)])
        data[name] = {"ratio": against[name], "seconds": wall, "cpu_seconds": cpu}
    head = ["contestant", f"x {reference}", "µs", "client CPU, µs"]
    plain = {n: {k: v._asdict() for k, v in figures.items()} for n, figures in data.items()}
    return Table(title, head, rows, {"contestants": plain})
