"""The worker processes of one chaos run, and their history.

Invariant: a kill is recorded before the signal is sent. While the run goes on, only the ends of
the history files are read: they grow by thousands of records a second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

from leaselock.testing.record_format import Event, last_records
from leaselock.testing.recorder import Recorder
from testkit.polling import poll_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from leaselock.testing.record_format import Record

    Process = subprocess.Popen[bytes]

KINDS = ("threads", "asyncio")
BILLION = 1_000_000_000
LEASE = 0.5
# Longer than the lease, so that a frozen holder has lost it when it resumes.
FREEZE = 0.8
TIMEOUT = 60.0
# For how long all workers run between two looks for a holder: those that are stopped again at once
# acquire nothing on a slow store.
PROGRESS = 0.02
# A worker writes about five records per grant, and more in a long one.
RECENT = 200


class WorkerPool:
    """The running workers, and the folder that they write to."""

    def __init__(
        self,
        folder: Path,
        url: str,
        locks: int = 1,
        env: Mapping[str, str] | None = None,
        prefixes: Sequence[Sequence[str]] = ((),),
        role: str = "work",
    ) -> None:
        self.url = url
        self.role = role
        self.prefixes = prefixes
        self.started = 0
        self.env = {**os.environ, **(env or {})}
        self.locks = locks
        self.history = folder / "history"
        self.error_file = folder / "errors"
        self.recorder = Recorder(self.history)
        self.running: list[Process] = []

    def start(self, kind: str, role: str = "", lease: float = LEASE) -> Process:
        """Start a worker; with *role* "hold" it keeps the lock and prints a line once it has it,
        with "share" it also reads and takes permits.
        """
        prefix = self.prefixes[self.started // len(KINDS) % len(self.prefixes)]
        self.started += 1
        program = [*prefix, sys.executable, "-m", "testkit.chaos.worker", kind, self.url]
        with open(self.error_file, "ab") as errors:
            worker = subprocess.Popen(
                [*program, str(self.history), str(lease), role or self.role, str(self.locks)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self.env,
            )
        self.running.append(worker)
        return worker

    def kill(self, worker: Process) -> None:
        """Kill a worker; AssertionError if it has already ended by itself."""
        self._check_running(worker)
        self.recorder.killed(worker.pid)
        worker.kill()
        self.reap(worker)

    def _check_running(self, worker: Process) -> None:
        if worker.poll() is not None:
            raise AssertionError(f"a worker ended by itself:\n{self.errors()}")

    def reap(self, worker: Process) -> None:
        """Wait for a killed worker to end."""
        worker.wait()
        if worker.stdout is not None:
            worker.stdout.close()
        self.running.remove(worker)

    def kill_all(self) -> None:
        """Kill every worker."""
        while self.running:
            self.kill(self.running[0])

    def stop(self, worker: Process) -> None:
        """Stop a worker with SIGSTOP, and wait until it has stopped."""
        self._check_running(worker)
        worker.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._check_running(worker)

    def resume(self, worker: Process) -> None:
        """Continue a stopped worker."""
        worker.send_signal(signal.SIGCONT)

    def freeze(self, worker: Process, seconds: float) -> None:
        """Stop a worker for *seconds*."""
        self.stop(worker)
        threading.Event().wait(seconds)
        self.resume(worker)

    def recent_records(self, pids: Iterable[int] | None = None) -> list[Record]:
        """Return the last records of these processes, or of all."""
        return last_records(self.history, RECENT, None if pids is None else set(pids))

    def recent_grants(self, pids: Iterable[int] | None = None, since: int = 0) -> list[int]:
        """Return the times of the last grants recorded by these processes, or by all."""
        records = self.recent_records(pids)
        return [r.ts for r in records if r.event is Event.GRANTED and r.ts > since]

    def is_holding(self, worker: Process) -> bool:
        """Return whether a stopped worker has a lease that stays valid for at least 0.1 s."""
        granted, ended, valid = set(), set(), {}
        for record in self.recent_records({worker.pid}):
            if record.event is Event.GRANTED:
                granted.add(record.hold)
            elif record.event is Event.RELEASING:
                ended.add(record.hold)
            elif record.event is Event.VALID_UNTIL:
                valid[record.hold] = record.aux
        soon = time.monotonic_ns() + BILLION // 10
        return any(valid[hold] > soon for hold in granted - ended)

    def stop_a_holder(self, rng: random.Random) -> Process:
        """Stop random workers one at a time until one holds a lock; return it, still stopped."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            victim = rng.choice(self.running)
            self.stop(victim)
            if self.is_holding(victim):
                return victim
            self.resume(victim)
            threading.Event().wait(PROGRESS)
        raise AssertionError(f"no worker was ever found holding a lock\n{self.errors()}")

    def wait_until_all_granted(self, since: int = 0) -> None:
        """Wait until each worker has been granted a lock after *since*."""
        for worker in self.running:
            wait_until(lambda worker=worker: self.recent_grants({worker.pid}, since))  # type: ignore[misc]

    def errors(self) -> str:
        """Return what workers that ended by themselves wrote to stderr."""
        return self.error_file.read_text() if self.error_file.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in list(self.running):
            worker.kill()
            self.reap(worker)
        self.recorder.close()


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until *condition* is true; AssertionError if that takes too long."""
    if not poll_until(condition, TIMEOUT):
        raise AssertionError(f"the condition was not true within {TIMEOUT:g} s")
