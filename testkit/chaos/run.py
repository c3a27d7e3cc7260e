"""One chaos run: workers on a target, faults drawn from a seed, and the verdict on the history."""

from __future__ import annotations

import random
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from leaselock.testing.checker import Rules, check
from leaselock.testing.history import History
from leaselock.testing.verdict import Kind
from testkit.chaos.worker_pool import BILLION, FREEZE, KINDS, LEASE, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leaselock.testing.verdict import Verdict, Violation
    from testkit.chaos.target import Target

PAIRS = 2
# So few that most grants have a waiter: an overlap can be seen only in these
# (`verification.chaos.sensitivity`).
LOCKS = 2
LONGEST_PAUSE = 0.6
# Violations that a store without exclusion may show. It must still reject writes with old tokens.
EXCUSED = {Kind.OVERLAP, Kind.TOKEN_ORDER, Kind.TOKEN_REUSED}


class InjectedFault(NamedTuple):
    """A fault that was injected: its name, the pid of an affected worker, its times in ns."""

    name: str
    pid: int | None
    began: int
    ended: int


class Report(NamedTuple):
    """The result of a chaos run."""

    target: str
    seed: int
    seconds: float
    faults: tuple[InjectedFault, ...]
    verdict: Verdict
    excused: tuple[Violation, ...]
    broken: tuple[Violation, ...]
    errors: str
    history: History

    @property
    def ok(self) -> bool:
        """Whether every guarantee was kept, and no worker failed."""
        return not self.broken and not self.errors

    def fault_counts(self) -> dict[str, int]:
        """Return the number of faults of each name."""
        names = [fault.name for fault in self.faults]
        return {name: names.count(name) for name in sorted(set(names))}


class FaultInjector:
    """Injects random faults into the workers and into their store."""

    def __init__(self, target: Target, pool: WorkerPool, rng: random.Random) -> None:
        self.pool = pool
        self.rng = rng
        self.injected: list[InjectedFault] = []
        self.victim: int | None = None
        own = {"kill": self._kill, "kill holder": self._kill_holder, "freeze": self._freeze}
        self.faults = {**own, **target.faults}

    def _kill(self, rng: random.Random) -> None:
        self._replace(rng.choice(self.pool.running).pid)

    def _kill_holder(self, rng: random.Random) -> None:
        self._replace(self.pool.stop_a_holder(rng).pid)

    def _replace(self, pid: int) -> None:
        self.victim = pid
        self.pool.kill(next(worker for worker in self.pool.running if worker.pid == pid))
        self.pool.start(self.rng.choice(KINDS))

    def _freeze(self, rng: random.Random) -> None:
        victim = rng.choice(self.pool.running)
        self.victim = victim.pid
        self.pool.freeze(victim, FREEZE * rng.choice((0.2, 1.0)))

    def run(self, seconds: float, on_fault: Callable[[str], None]) -> None:
        """Inject one fault after the other for *seconds*."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            threading.Event().wait(self.rng.uniform(0.0, LONGEST_PAUSE))
            name = self.rng.choice(sorted(self.faults))
            self.victim, began = None, time.monotonic_ns()
            self.faults[name](self.rng)
            self.injected.append(InjectedFault(name, self.victim, began, time.monotonic_ns()))
            on_fault(name)


def run(
    target: Target, seed: int, seconds: float, folder: Path, on_fault: Callable[[str], None]
) -> Report:
    """Inject faults for *seconds*, then check that every worker still gets a lock, and report."""
    folder.mkdir(parents=True)
    role = "share" if target.shares else "work"
    with WorkerPool(folder, target.url, LOCKS, target.env, target.prefixes, role) as pool:
        for kind in KINDS * PAIRS:
            pool.start(kind)
        pool.wait_until_all_granted()
        injector = FaultInjector(target, pool, random.Random(f"{seed} {target.name}"))
        injector.run(seconds, on_fault)
        target.restore()
        pool.wait_until_all_granted(time.monotonic_ns())
        pool.kill_all()
    return evaluate(target, seed, seconds, injector, History.read(pool.history))


def evaluate(
    target: Target, seed: int, seconds: float, injector: FaultInjector, history: History
) -> Report:
    """Check the history, and separate violations that the store does not promise to avoid."""
    bound = round((FREEZE + LEASE + target.idle) * BILLION)
    verdict = check(history, Rules(min_grants=1, ghost_bound=bound, hand_over_bound=bound))
    found = verdict.violations
    excused = tuple(v for v in found if v.kind in EXCUSED and not target.exclusive)
    broken = tuple(v for v in found if v not in excused)
    errors = injector.pool.errors()
    faults = tuple(injector.injected)
    return Report(target.name, seed, seconds, faults, verdict, excused, broken, errors, history)


def run_with_progress(target: Target, seed: int, seconds: float, folder: Path) -> Report:
    """Run, and show the progress (on a terminal) and the result on stderr."""
    began = time.monotonic()
    faults = 0

    def on_fault(name: str) -> None:
        nonlocal faults
        faults += 1
        if sys.stderr.isatty():
            passed = time.monotonic() - began
            sys.stderr.write(f"\r{target.name}: {passed:5.1f} s, {faults} faults, {name:16}")

    report = run(target, seed, seconds, folder, on_fault)
    start = "\r" if sys.stderr.isatty() else ""
    grants = report.verdict.counts.grants
    result = f"{grants} grants, {faults} faults, {'kept' if report.ok else 'BROKEN'}"
    sys.stderr.write(f"{start}{target.name}: {result}{' ' * 30}\n")
    if not report.ok:
        sys.stderr.write(f"{report.verdict}\n{report.errors}\n")
    return report
