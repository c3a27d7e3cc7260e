"""Measurements with one thread: contestants alternate in random order, one number per sample."""

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


class Sample(NamedTuple):
    """Wall time and client CPU time in seconds, and commands of the server, for one operation."""

    wall: float
    cpu: float
    commands: float = 0.0


@runtime_checkable
class SelfTimed(Protocol):
    """A contestant that measures itself, because it runs in another process or an event loop."""

    def pairs(self, count: int) -> Sample:
        """Acquire and release, *count* times."""


class SampleSetup(NamedTuple):
    """How to prepare the folder that all contestants share and each lock, and count commands."""

    prepare: Callable[[Path], object] = Path.exists
    before: Callable[[Contestant], None] | None = None
    counter: Callable[[], int] | None = None


def pairs(lock: Contestant, count: int) -> Sample:
    """Acquire and release, *count* times."""
    if isinstance(lock, SelfTimed):
        return lock.pairs(count)
    acquire, release = lock.acquire, lock.release
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        acquire()
        release()
    return Sample((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


def pairs_per_sample(lock: Contestant, seconds: float) -> int:
    """Return how many pairs of acquire and release take *seconds*."""
    pairs(lock, WARM_UP)
    return max(1, round(seconds / pairs(lock, WARM_UP).wall))


def sample_in_rounds(
    locks: Mapping[str, Contestant], scale: Scale, count: Callable[[], int] | None = None
) -> dict[str, list[Sample]]:
    """Measure open locks, in a different order in each round."""
    counts = {name: pairs_per_sample(lock, scale.sample_seconds) for name, lock in locks.items()}
    counting = -(count() - count()) if count else 0
    samples: dict[str, list[Sample]] = {name: [] for name in locks}
    for _ in range(scale.rounds):
        for name in random.sample(list(locks), len(locks)):
            before = count() if count else 0
            sample = pairs(locks[name], counts[name])
            commands = count() - before - counting if count else 0
            samples[name].append(sample._replace(commands=commands / counts[name]))
    return samples


def sample_contestants(
    names: Iterable[str], scale: Scale, setup: SampleSetup | None = None
) -> dict[str, list[Sample]]:
    """Measure each contestant that is installed."""
    setup = setup or SampleSetup()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        setup.prepare(Path(folder))
        locks = {
            name: stack.enter_context(closing(contestant(name)(Path(folder))))
            for name in present(names)
        }
        for lock in locks.values():
            if setup.before is not None:
                setup.before(lock)
        return sample_in_rounds(locks, scale, setup.counter)


def ratios(samples: Mapping[str, list[Sample]], reference: str) -> dict[str, Spread]:
    """Return the time of each contestant as a multiple of the reference's, round by round."""
    base = [sample.wall for sample in samples[reference]]
    return {name: ratio([sample.wall for sample in own], base) for name, own in samples.items()}


def ratio_goal(
    samples: Mapping[str, list[Sample]], text: str, name: str, other: str, most: float
) -> list[Goal]:
    """Return the goal that *name* takes at most *most* times as long as *other*, if measured."""
    if other not in samples:
        return []
    return [Goal(text, ratios(samples, other)[name].median, most)]


def fastest_peer_goal(
    samples: Mapping[str, list[Sample]], name: str, peers: Iterable[str]
) -> list[Goal]:
    """Return the goal that *name* is faster than the fastest peer that was measured."""
    walls = {p: spread([s.wall for s in samples[p]]).median for p in peers if p in samples}
    if not walls:
        return []
    best = min(walls, key=walls.__getitem__)
    return ratio_goal(
        samples, f"a pair x that of the fastest peer, {TITLES[best]}", name, best, 1.0
    )


def table_of(title: str, samples: Mapping[str, list[Sample]], reference: str = REFERENCE) -> Table:
    """Return the table of a workload, ratios first.

    If *reference* was not measured, the ratios refer to the first contestant.
    """
    reference = reference if reference in samples else next(iter(samples))
    against = ratios(samples, reference)
    counted = any(sample.commands for own in samples.values() for sample in own)
    rows, data = [], {}
    for name, own in samples.items():
        wall, cpu, commands = (spread(values) for values in zip(*own, strict=True))
        row = [TITLES.get(name, name), against[name].show(digits=3), wall.show(1e6, 2)]
        row += [cpu.show(1e6, 2), *([f"{commands.median:.1f}"] if counted else [])]
        rows.append(row)
        data[name] = {"ratio": against[name], "seconds": wall, "cpu_seconds": cpu}
        data[name] |= {"commands": commands} if counted else {}
    head: Sequence[str] = ["contestant", f"x {reference}", "µs", "client CPU, µs"]
    head = [*head, *(["server commands"] if counted else [])]
    plain = {n: {k: v._asdict() for k, v in figures.items()} for n, figures in data.items()}
    return Table(title, head, rows, {"reference": reference, "contestants": plain})
