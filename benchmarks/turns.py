"""One thread at a time: contestants take turns in random order, and each turn is one number."""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from benchmarks.contestants import REFERENCE, TITLES, contestant, present
from benchmarks.figures import ratio, spread
from benchmarks.tables import Goal, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchmarks.contestants import Contestant
    from benchmarks.figures import Spread
    from benchmarks.scale import Scale

WARM_UP = 20


class Turn(NamedTuple):
    """Seconds for one operation, by the clock and of the client's processor, and what it made the
    server do.
    """

    wall: float
    cpu: float
    commands: float = 0.0


@runtime_checkable
class Paced(Protocol):
    """One that measures itself: it is in another process, or in a loop."""

    def pairs(self, count: int) -> Turn:
        """Acquire and release, *count* times."""


class Ground(NamedTuple):
    """Where turns are taken: what gets the folder ready that all share, what brings each into
    position, and what counts the commands of the server.
    """

    prepare: Callable[[Path], object] = Path.exists
    before: Callable[[Contestant], None] | None = None
    counter: Callable[[], int] | None = None


def pairs(lock: Contestant, count: int) -> Turn:
    """Acquire and release, *count* times."""
    if isinstance(lock, Paced):
        return lock.pairs(count)
    acquire, release = lock.acquire, lock.release
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        acquire()
        release()
    return Turn((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


def how_many(lock: Contestant, seconds: float) -> int:
    """How many pairs fill a turn."""
    pairs(lock, WARM_UP)
    return max(1, round(seconds / pairs(lock, WARM_UP).wall))


def rounds_of(
    locks: Mapping[str, Contestant], scale: Scale, count: Callable[[], int] | None = None
) -> dict[str, list[Turn]]:
    """The turns of locks that are open, each round in another order."""
    counts = {name: how_many(lock, scale.turn) for name, lock in locks.items()}
    asking = -(count() - count()) if count else 0
    turns: dict[str, list[Turn]] = {name: [] for name in locks}
    for _ in range(scale.rounds):
        for name in random.sample(list(locks), len(locks)):
            before = count() if count else 0
            turn = pairs(locks[name], counts[name])
            asked = count() - before - asking if count else 0
            turns[name].append(turn._replace(commands=asked / counts[name]))
    return turns


def take_turns(
    names: Iterable[str], scale: Scale, ground: Ground | None = None
) -> dict[str, list[Turn]]:
    """The turns of each contestant that can be measured here."""
    ground = ground or Ground()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ground.prepare(Path(folder))
        locks = {
            name: stack.enter_context(closing(contestant(name)(Path(folder))))
            for name in present(names)
        }
        for lock in locks.values():
            if ground.before is not None:
                ground.before(lock)
        return rounds_of(locks, scale, ground.counter)


def ratios(turns: Mapping[str, list[Turn]], reference: str) -> dict[str, Spread]:
    """Each contestant's time as a multiple of the reference's, round by round."""
    base = [turn.wall for turn in turns[reference]]
    return {name: ratio([turn.wall for turn in mine], base) for name, mine in turns.items()}


def goal(
    turns: Mapping[str, list[Turn]], text: str, name: str, other: str, most: float
) -> list[Goal]:
    """That *name* takes at most so many times the time of *other*, if that is here."""
    if other not in turns:
        return []
    return [Goal(text, ratios(turns, other)[name].median, most)]


def ahead(turns: Mapping[str, list[Turn]], name: str, peers: Iterable[str]) -> list[Goal]:
    """That *name* is faster than the fastest of its peers that are here."""
    walls = {p: spread([t.wall for t in turns[p]]).median for p in peers if p in turns}
    if not walls:
        return []
    best = min(walls, key=walls.__getitem__)
    return goal(turns, f"a pair x that of the fastest peer, {TITLES[best]}", name, best, 1.0)


def table_of(title: str, turns: Mapping[str, list[Turn]], reference: str = REFERENCE) -> Table:
    """The table of a workload of turns, the ratios first; to the first's, if *reference* is not
    here.
    """
    reference = reference if reference in turns else next(iter(turns))
    against = ratios(turns, reference)
    counted = any(turn.commands for mine in turns.values() for turn in mine)
    rows, data = [], {}
    for name, mine in turns.items():
        wall, cpu, commands = (spread(values) for values in zip(*mine, strict=True))
        row = [TITLES.get(name, name), against[name].show(digits=3), wall.show(1e6, 2)]
        row += [cpu.show(1e6, 2), *([f"{commands.median:.1f}"] if counted else [])]
        rows.append(row)
        data[name] = {"ratio": against[name], "seconds": wall, "cpu_seconds": cpu}
        data[name] |= {"commands": commands} if counted else {}
    head: Sequence[str] = ["contestant", f"x {reference}", "µs", "client CPU, µs"]
    head = [*head, *(["server commands"] if counted else [])]
    plain = {n: {k: v._asdict() for k, v in figures.items()} for n, figures in data.items()}
    return Table(title, head, rows, {"reference": reference, "contestants": plain})
