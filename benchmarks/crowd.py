"""Several processes that want one lock all the time, and what came of it.

Law: exclusion is verified while this is measured: no two holds overlap, and a counter that only one
process at a time may touch comes out right.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from benchmarks.contender import Stint
from benchmarks.contestants import contestant
from benchmarks.contestants.foreign import Foreign
from benchmarks.crew import Member, python
from benchmarks.figures import jain, percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Round(NamedTuple):
    """One turn of one contestant; seconds."""

    processes: float
    rate: float
    hold: float
    p50: float
    p99: float
    longest: float
    jain: float
    cpu: float
    """Of all clients together, for each hold."""
    hand_over: float
    """From the call of a release to the next grant, of one who waited for it; the median."""
    passed: float
    """How often in a second it went from one process to another."""
    commands: float = 0.0
    """Of the server, for each hold."""
    trip: float = 0.0
    """One bare round trip, shortly before."""

    @property
    def ideal(self) -> float:
        """The wait of everyone, were hand-overs free: as many holds as there are processes."""
        return self.processes * self.hold


class Crowd:
    """The processes of one contestant, in a folder that is prepared for them."""

    def __init__(self, name: str, size: int, prepare: Callable[[Path], object]) -> None:
        self.name = name
        self.stack = ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        prepare(self.folder)
        self.members = [self.stack.enter_context(self._enlisted()) for _ in range(size)]

    def _enlisted(self) -> Member:
        kind = contestant(self.name)
        if issubclass(kind, Foreign):
            return kind.enlisted(self.folder)
        return python("benchmarks.contender", self.name, self.folder)

    def __enter__(self) -> Self:
        for member in self.members:
            member.hear()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def turn(self, hold: float, seconds: float, count: Callable[[], int] | None = None) -> Round:
        """Let them contend."""
        counted, commands = self._counted(), count() if count else 0
        for member in self.members:
            member.tell(f"contend {hold!r} {seconds!r}")
        reports = [member.hear() for member in self.members]
        commands = count() - commands - 1 if count else 0
        by_process = [[Stint(*stint) for stint in report["stints"]] for report in reports]
        verify(self.name, by_process, self._counted() - counted)
        figures = summary(by_process, sum(report["cpu"] for report in reports))
        return figures._replace(commands=commands / sum(map(len, by_process)))

    def _counted(self) -> int:
        return int.from_bytes(Path(self.folder, "counter").read_bytes(), "little")


def verify(name: str, by_process: Sequence[Sequence[Stint]], counted: int) -> None:
    """Fail loudly if two held at once."""
    stints = in_order(by_process)
    overlaps = sum(after.granted < before.given_back for before, after in pairwise(stints))
    if overlaps or counted != len(stints):
        raise AssertionError(f"{name}: {overlaps} overlaps, {counted} counted of {len(stints)}")


def in_order(by_process: Sequence[Sequence[Stint]]) -> list[Stint]:
    """All holds, as they came one after the other."""
    return sorted((s for mine in by_process for s in mine), key=lambda stint: stint.granted)


def hand_overs(stints: Sequence[Stint]) -> list[int]:
    """From each release to the next grant, where that one had asked before; sorted."""
    return sorted(
        after.granted - before.given_back
        for before, after in pairwise(stints)
        if after.asked < before.given_back
    )


def summary(by_process: Sequence[Sequence[Stint]], cpu: float) -> Round:
    """The figures of one turn."""
    stints = in_order(by_process)
    waits = sorted(stint.granted - stint.asked for stint in stints)
    held = sum(stint.given_back - stint.granted for stint in stints)
    lasted = max(s.given_back for s in stints) - min(s.asked for s in stints)
    owners = {stint: number for number, mine in enumerate(by_process) for stint in mine}
    passed = sum(owners[before] != owners[after] for before, after in pairwise(stints))
    p50, p99, longest = (percentile(waits, percent) / 1e9 for percent in (50, 99, 100))
    return Round(
        processes=len(by_process),
        rate=len(stints) / lasted * 1e9,
        hold=held / len(stints) / 1e9,
        p50=p50,
        p99=p99,
        longest=longest,
        jain=jain([len(mine) for mine in by_process]),
        cpu=cpu / len(stints),
        hand_over=percentile(hand_overs(stints), 50) / 1e9,
        passed=passed / lasted * 1e9,
    )
