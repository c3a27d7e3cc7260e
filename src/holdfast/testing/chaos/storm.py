"""One storm: workers on a stage, faults from a seed, and the verdict on their history."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from tests.crash.test_crash import BILLION, COLOURS, FREEZE, LEASE, Workers, until
from tests.storms.stages import STAGES

from holdfast.testing.checker import Rules, check
from holdfast.testing.fold import History

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.storms.stages import Stage

    from holdfast.testing.verdict import Verdict

PAIRS = 2


class Report(NamedTuple):
    """What a storm came to."""

    stage: str
    seed: int
    seconds: float
    faults: dict[str, int]
    verdict: Verdict
    complaints: str

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return self.verdict.ok and not self.complaints


class Storm:
    """Faults against the processes and against their store."""

    def __init__(self, stage: Stage, workers: Workers, lots: random.Random) -> None:
        self.stage = stage
        self.workers = workers
        self.lots = lots
        self.counts: dict[str, int] = {}
        self.faults = {"kill": self._kill, "freeze": self._freeze, **stage.faults}

    def _kill(self, lots: random.Random) -> None:
        self.workers.kill(lots.choice(self.workers.running))
        self.workers.start(lots.choice(COLOURS))

    def _freeze(self, lots: random.Random) -> None:
        self.workers.freeze(lots.choice(self.workers.running), FREEZE * lots.choice((0.2, 1.0)))

    def rage(self, seconds: float, told: Callable[[str], None]) -> None:
        """One fault after the other."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.lots.uniform(0.0, 0.25))
            name = self.lots.choice(sorted(self.faults))
            self.faults[name](self.lots)
            self.counts[name] = self.counts.get(name, 0) + 1
            told(name)


def play(name: str, seed: int, seconds: float, folder: Path, told: Callable[[str], None]) -> Report:
    """A storm, the calm after it, in which everybody must get the lock, and the verdict."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        stage = STAGES[name](stack, folder)
        workers = Workers(folder, stage.url)
        stack.callback(workers.end)
        for colour in COLOURS * PAIRS:
            workers.start(colour)
        until(lambda: all(workers.granted({worker.pid}) for worker in workers.running))
        storm = Storm(stage, workers, random.Random(f"{seed} {name}"))
        storm.rage(seconds, told)
        stage.calm()
        calm = time.monotonic_ns()
        for worker in workers.running:
            until(lambda worker=worker: workers.granted({worker.pid}, calm))  # type: ignore[misc]
        while workers.running:
            workers.kill(workers.running[0])
        bound = round((FREEZE + LEASE + stage.idle) * BILLION)
        rules = Rules(min_grants=1, ghost_bound=bound, hand_over_bound=bound)
        verdict = check(History.read(workers.history), rules)
        return Report(name, seed, seconds, storm.counts, verdict, workers.complaints())
