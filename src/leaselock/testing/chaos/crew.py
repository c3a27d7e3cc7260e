"""The processes of one storm, and their history.

Law: a kill is recorded before the signal is sent. What is asked of the history while a storm goes
on is read from the ends of the files, for they grow by thousands of records a second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

from leaselock.testing.history import Event, Recorder
from leaselock.testing.looking import until
from leaselock.testing.records import last_records

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from leaselock.testing.history import Record

    Process = subprocess.Popen[bytes]

COLOURS = ("threads", "asyncio")
BILLION = 1_000_000_000
LEASE = 0.5
# Longer than the lease, so that a frozen holder has lost it when it goes on.
FREEZE = 0.8
PATIENCE = 20.0
# A turn writes some five records, a long one one for each of its steps.
RECENT = 200


class Crew:
    """Workers that run, and the folder that they write to."""

    def __init__(
        self,
        folder: Path,
        url: str,
        locks: int = 1,
        env: Mapping[str, str] | None = None,
        entries: Sequence[Sequence[str]] = ((),),
    ) -> None:
        self.url = url
        self.entries = entries
        self.started = 0
        self.env = {**os.environ, **(env or {})}
        self.locks = locks
        self.history = folder / "history"
        self.errors = folder / "errors"
        self.recorder = Recorder(self.history)
        self.running: list[Process] = []

    def start(self, colour: str, role: str = "work", lease: float = LEASE) -> Process:
        """One more; *role* "hold" takes the lock for good, and says so."""
        entry = self.entries[self.started // len(COLOURS) % len(self.entries)]
        self.started += 1
        program = [*entry, sys.executable, "-m", "leaselock.testing.chaos.worker", colour, self.url]
        with open(self.errors, "ab") as errors:
            worker = subprocess.Popen(
                [*program, str(self.history), str(lease), role, str(self.locks)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self.env,
            )
        self.running.append(worker)
        return worker

    def kill(self, worker: Process) -> None:
        """Kill one that must still run."""
        self._alive(worker)
        self.recorder.killed(worker.pid)
        worker.kill()
        self.bury(worker)

    def _alive(self, worker: Process) -> None:
        if worker.poll() is not None:
            raise AssertionError(f"a worker ended by itself:\n{self.complaints()}")

    def bury(self, worker: Process) -> None:
        """Reap one that was killed."""
        worker.wait()
        if worker.stdout is not None:
            worker.stdout.close()
        self.running.remove(worker)

    def kill_all(self) -> None:
        """The end of the storm."""
        while self.running:
            self.kill(self.running[0])

    def stop(self, worker: Process) -> None:
        """Stop it, and wait until it has stopped."""
        self._alive(worker)
        worker.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._alive(worker)

    def resume(self, worker: Process) -> None:
        """Let it go on."""
        worker.send_signal(signal.SIGCONT)

    def freeze(self, worker: Process, seconds: float) -> None:
        """Have it stand still for a while."""
        self.stop(worker)
        threading.Event().wait(seconds)
        self.resume(worker)

    def recent(self, pids: Iterable[int] | None = None) -> list[Record]:
        """The last records of these processes, or of all."""
        return last_records(self.history, RECENT, None if pids is None else set(pids))

    def granted(self, pids: Iterable[int] | None = None, since: int = 0) -> list[int]:
        """The instants of the last grants that these processes (or all) have recorded."""
        records = self.recent(pids)
        return [r.ts for r in records if r.event is Event.GRANTED and r.ts > since]

    def holds(self, worker: Process) -> bool:
        """Whether one that is stopped believes that it holds a lock, and will for a while."""
        granted, ended, valid = set(), set(), {}
        for record in self.recent({worker.pid}):
            if record.event is Event.GRANTED:
                granted.add(record.hold)
            elif record.event is Event.RELEASING:
                ended.add(record.hold)
            elif record.event is Event.VALID_UNTIL:
                valid[record.hold] = record.aux
        soon = time.monotonic_ns() + BILLION // 10
        return any(valid[hold] > soon for hold in granted - ended)

    def a_holder(self, lots: random.Random) -> Process:
        """Stop one after another, until one is caught that holds a lock."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            victim = lots.choice(self.running)
            self.stop(victim)
            if self.holds(victim):
                return victim
            self.resume(victim)
        raise AssertionError(f"nobody was ever caught holding a lock\n{self.complaints()}")

    def everybody_granted(self, since: int = 0) -> None:
        """Wait until each of them has been granted a lock."""
        for worker in self.running:
            awaited(lambda worker=worker: self.granted({worker.pid}, since))  # type: ignore[misc]

    def complaints(self) -> str:
        """What the workers had to say when they ended by themselves."""
        return self.errors.read_text() if self.errors.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in list(self.running):
            worker.kill()
            self.bury(worker)
        self.recorder.close()


def awaited(condition: Callable[[], object]) -> None:
    """Wait until it is so; AssertionError when it takes too long."""
    if not until(condition, PATIENCE):
        raise AssertionError("it did not happen")
