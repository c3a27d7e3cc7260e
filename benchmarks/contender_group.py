"""Several processes that contend for one lock, and the figures of their holds.

Exclusion is verified during the measurement: no two holds overlap, and a counter that only the
holder may change has the right final value.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from benchmarks.contestants import contestant
from benchmarks.contestants.foreign import Foreign
from benchmarks.figures import jain, percentile
from benchmarks.workers.contender import HoldTimes
from benchmarks.workers.process import WorkerProcess, python_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

EXCLUSIVE = ""
"""The mode of a process that contends for an exclusive lock."""


class ContentionSample(NamedTuple):
    """The figures of one measurement of one contestant; times are in seconds."""

    processes: float
    rate: float
    hold: float
    p50: float
    p99: float
    longest: float
    jain: float
    cpu: float
    """CPU time of all clients together, per hold."""
    handoff: float
    """Median time from a release to the next grant, if that process was waiting."""
    transfers: float
    """How many times per second the lock moved from one process to another."""
    commands: float = 0.0
    """Commands of the server, per hold."""
    round_trip: float = 0.0
    """The time of one bare round trip, measured immediately before."""

    @property
    def ideal(self) -> float:
        """The wait of each process if hand-offs took no time: one hold of every process."""
        return self.processes * self.hold


class ContenderGroup:
    """The processes of one contestant, one for each of *modes*, in a prepared folder."""

    def __init__(self, name: str, modes: Iterable[str], prepare: Callable[[Path], object]) -> None:
        self.name = name
        self.modes = modes
        self.prepare = prepare

    def _start(self, mode: str) -> WorkerProcess:
        kind = contestant(self.name)
        if issubclass(kind, Foreign):
            return kind.start(self.folder, mode)
        return python_worker("benchmarks.workers.contender", self.name, self.folder, mode)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.prepare(self.folder)
            self.workers = [stack.enter_context(self._start(mode)) for mode in self.modes]
            for worker in self.workers:
                worker.receive()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def sample(
        self, hold: float, seconds: float, count: Callable[[], int] | None = None
    ) -> ContentionSample:
        """Let the processes contend for *seconds*; verify and return the figures."""
        counted, commands = self._counted(), count() if count else 0
        by_process, cpu = self.contend(hold, seconds)
        commands = count() - commands - 1 if count else 0
        verify(self.name, by_process, self._counted() - counted)
        figures = summary(by_process, cpu)
        return figures._replace(commands=commands / sum(map(len, by_process)))

    def contend(self, hold: float, seconds: float) -> tuple[list[list[HoldTimes]], float]:
        """Let the processes contend; return the holds of each, and the CPU time of all."""
        for worker in self.workers:
            worker.send(f"contend {hold!r} {seconds!r}")
        reports = [worker.receive() for worker in self.workers]
        by_process = [[HoldTimes(*hold) for hold in report["holds"]] for report in reports]
        return by_process, sum(report["cpu"] for report in reports)

    def _counted(self) -> int:
        return int.from_bytes(Path(self.folder, "counter").read_bytes(), "little")


def verify(name: str, by_process: Sequence[Sequence[HoldTimes]], counted: int) -> None:
    """Raise AssertionError if two processes held the lock at once."""
    holds = in_order(by_process)
    overlaps = sum(after.granted < before.released for before, after in pairwise(holds))
    if overlaps or counted != len(holds):
        raise AssertionError(f"{name}: {overlaps} overlaps, {counted} counted of {len(holds)}")


def verify_limit(name: str, weighted: Iterable[tuple[HoldTimes, int]], limit: int) -> None:
    """Raise AssertionError if the weights of concurrent holds ever exceed the limit."""
    changes = [
        change
        for hold, weight in weighted
        for change in ((hold.granted, weight), (hold.released, -weight))
    ]
    # A release comes before a grant of the same moment.
    most = max(accumulate(weight for _, weight in sorted(changes)))
    if most > limit:
        raise AssertionError(f"{name}: concurrent holds of {most}, the limit is {limit}")


def in_order(by_process: Sequence[Sequence[HoldTimes]]) -> list[HoldTimes]:
    """Return all holds in the order of their grants."""
    return sorted((hold for mine in by_process for hold in mine), key=lambda hold: hold.granted)


def handoffs(holds: Sequence[HoldTimes]) -> list[int]:
    """Return the sorted times from a release to the next grant, where that one was waiting."""
    return sorted(
        after.granted - before.released
        for before, after in pairwise(holds)
        if after.requested < before.released
    )


def summary(by_process: Sequence[Sequence[HoldTimes]], cpu: float) -> ContentionSample:
    """Return the figures of one measurement."""
    holds = in_order(by_process)
    waits = sorted(hold.granted - hold.requested for hold in holds)
    held = sum(hold.released - hold.granted for hold in holds)
    duration = max(hold.released for hold in holds) - min(hold.requested for hold in holds)
    owners = {hold: number for number, mine in enumerate(by_process) for hold in mine}
    transfers = sum(owners[before] != owners[after] for before, after in pairwise(holds))
    p50, p99, longest = (percentile(waits, percent) / 1e9 for percent in (50, 99, 100))
    return ContentionSample(
        processes=len(by_process),
        rate=len(holds) / duration * 1e9,
        hold=held / len(holds) / 1e9,
        p50=p50,
        p99=p99,
        longest=longest,
        jain=jain([len(mine) for mine in by_process]),
        cpu=cpu / len(holds),
        handoff=percentile(handoffs(holds), 50) / 1e9,
        transfers=transfers / duration * 1e9,
    )
