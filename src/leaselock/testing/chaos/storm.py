"""One storm: workers on a stage, faults from a seed, and the verdict on their history."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from leaselock.testing.chaos.crew import BILLION, COLOURS, FREEZE, LEASE, Crew
from leaselock.testing.checker import Rules, check
from leaselock.testing.fold import History
from leaselock.testing.verdict import Kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leaselock.testing.chaos.stage import Stage
    from leaselock.testing.verdict import Verdict, Violation

PAIRS = 2
LOCKS = 8
PAUSE = 0.6
# What a store that does not promise exclusion may show. That no older token writes, it must keep.
EXCUSED = {Kind.OVERLAP, Kind.TOKEN_ORDER, Kind.TOKEN_REUSED}


class Struck(NamedTuple):
    """A fault that was dealt: its name, its victim if it is a worker, from when to when (ns)."""

    fault: str
    pid: int | None
    began: int
    ended: int


class Report(NamedTuple):
    """What a storm came to."""

    stage: str
    seed: int
    seconds: float
    struck: tuple[Struck, ...]
    verdict: Verdict
    excused: tuple[Violation, ...]
    broken: tuple[Violation, ...]
    complaints: str
    history: History

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not self.broken and not self.complaints

    def faults(self) -> dict[str, int]:
        """How many there were of each kind."""
        names = [struck.fault for struck in self.struck]
        return {name: names.count(name) for name in sorted(set(names))}


class Storm:
    """Faults against the processes and against their store."""

    def __init__(self, stage: Stage, crew: Crew, lots: random.Random) -> None:
        self.crew = crew
        self.lots = lots
        self.struck: list[Struck] = []
        self.victim: int | None = None
        own = {"kill": self._kill, "kill holder": self._kill_holder, "freeze": self._freeze}
        self.faults = {**own, **stage.faults}

    def _kill(self, lots: random.Random) -> None:
        self._replace(lots.choice(self.crew.running).pid)

    def _kill_holder(self, lots: random.Random) -> None:
        self._replace(self.crew.a_holder(lots).pid)

    def _replace(self, pid: int) -> None:
        self.victim = pid
        self.crew.kill(next(worker for worker in self.crew.running if worker.pid == pid))
        self.crew.start(self.lots.choice(COLOURS))

    def _freeze(self, lots: random.Random) -> None:
        victim = lots.choice(self.crew.running)
        self.victim = victim.pid
        self.crew.freeze(victim, FREEZE * lots.choice((0.2, 1.0)))

    def rage(self, seconds: float, told: Callable[[str], None]) -> None:
        """One fault after the other."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            threading.Event().wait(self.lots.uniform(0.0, PAUSE))
            name = self.lots.choice(sorted(self.faults))
            self.victim, began = None, time.monotonic_ns()
            self.faults[name](self.lots)
            self.struck.append(Struck(name, self.victim, began, time.monotonic_ns()))
            told(name)


def play(
    stage: Stage, seed: int, seconds: float, folder: Path, told: Callable[[str], None]
) -> Report:
    """A storm, the calm after it, in which everybody must get a lock, and the verdict."""
    folder.mkdir(parents=True)
    with Crew(folder, stage.url, LOCKS, stage.env, stage.entries) as crew:
        for colour in COLOURS * PAIRS:
            crew.start(colour)
        crew.everybody_granted()
        storm = Storm(stage, crew, random.Random(f"{seed} {stage.name}"))
        storm.rage(seconds, told)
        stage.calm()
        crew.everybody_granted(time.monotonic_ns())
        crew.kill_all()
    return judged(stage, seed, seconds, storm, History.read(crew.history))


def judged(stage: Stage, seed: int, seconds: float, storm: Storm, history: History) -> Report:
    """The verdict, and what of it the store had not promised."""
    bound = round((FREEZE + LEASE + stage.idle) * BILLION)
    verdict = check(history, Rules(min_grants=1, ghost_bound=bound, hand_over_bound=bound))
    found = verdict.violations
    excused = tuple(v for v in found if v.kind in EXCUSED and not stage.exclusive)
    broken = tuple(v for v in found if v not in excused)
    complaints = storm.crew.complaints()
    struck = tuple(storm.struck)
    return Report(stage.name, seed, seconds, struck, verdict, excused, broken, complaints, history)
