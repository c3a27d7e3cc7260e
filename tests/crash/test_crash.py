"""Processes that are killed and frozen at any moment, on a real store; the proof is the history.

Law: wherever a signal strikes, no two believe at once, tokens rise, and who waits gets the lock.
How often holders are struck is not left to chance: the victim is stopped, looked at, then killed.
A failing seed can be run again, though not exactly.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.redis import Redis

from holdfast.testing.checker import Rules, check
from holdfast.testing.fold import History
from holdfast.testing.history import Event, Recorder, read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.testing.history import Record

ROOT = Path(__file__).parents[2]
COLOURS = ("threads", "asyncio")
LEASE = 0.5
FREEZE = 0.8
FREEZES, KILLS, KILLED_HOLDERS = 3, 3, 4
GRANTS_BETWEEN = 20
LONG_LEASE = 60.0
PATIENCE = 20.0
BILLION = 1_000_000_000
# A frozen process may be the one to whom the lock is handed, or in the middle of a transaction,
# and a loaded machine is slow: what is proved is that the lock is not idle for good.
BOUND = round((FREEZE + LEASE + 3.0) * BILLION)
RULES = Rules(
    min_grants=GRANTS_BETWEEN * (FREEZES + KILLS + KILLED_HOLDERS),
    min_contention=0.3,
    min_died_holding=KILLED_HOLDERS,
    ghost_bound=BOUND,
    hand_over_bound=BOUND,
)


class Workers:
    """The processes of one test, and their history."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.url = url or f"sqlite:///{folder}/locks.db"
        self.history = folder / "history"
        self.errors = folder / "errors"
        self.recorder = Recorder(self.history)
        self.running: list[subprocess.Popen[bytes]] = []

    def start(
        self, colour: str, role: str = "work", lease: float = LEASE
    ) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "tests.crash.worker", colour, self.url]
        with open(self.errors, "ab") as errors:
            worker = subprocess.Popen(
                [*program, str(self.history), str(lease), role],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.running.append(worker)
        return worker

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        assert worker.poll() is None, self.complaints()
        self.recorder.killed(worker.pid)
        worker.kill()
        self.bury(worker)

    def bury(self, worker: subprocess.Popen[bytes]) -> None:
        worker.wait()
        assert worker.stdout is not None
        worker.stdout.close()
        self.running.remove(worker)

    def freeze(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        worker.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        worker.send_signal(signal.SIGCONT)

    def stop(self, worker: subprocess.Popen[bytes]) -> None:
        """Stop it, and wait until it has stopped."""
        worker.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)

    def granted(self, pids: set[int] | None = None, since: int = 0) -> list[int]:
        """The instants of the grants that these processes (or all) have recorded."""
        records = read_records(self.history)
        return [
            record.ts
            for record in records
            if record.event is Event.GRANTED and record.ts > since
            if pids is None or record.pid in pids
        ]

    def holds(self, pid: int) -> bool:
        """Whether one that is stopped believes that it holds the lock, and will for a while."""
        ended, valid = set(), {}
        for record in read_records(self.history):
            if record.pid == pid and record.event is Event.RELEASING:
                ended.add(record.hold)
            if record.pid == pid and record.event is Event.VALID_UNTIL:
                valid[record.hold] = record.aux
        granted = {r.hold for r in read_records(self.history) if r.event is Event.GRANTED}
        soon = time.monotonic_ns() + BILLION // 10
        return any(valid[hold] > soon for hold in valid.keys() - ended if hold in granted)

    def complaints(self) -> str:
        return self.errors.read_text()

    def end(self) -> None:
        for worker in list(self.running):
            worker.kill()
            self.bury(worker)
        self.recorder.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    found = Workers(tmp_path)
    yield found
    found.end()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def a_holder(workers: Workers, lots: random.Random) -> subprocess.Popen[bytes]:
    """Stop one after another, until one is caught that holds the lock."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        victim = lots.choice(workers.running)
        workers.stop(victim)
        if workers.holds(victim.pid):
            return victim
        victim.send_signal(signal.SIGCONT)
    raise AssertionError("nobody was ever caught holding the lock")


def torment(workers: Workers, lots: random.Random) -> None:
    """Kill one or freeze one, again and again; the killed are replaced."""
    deeds = ["freeze"] * FREEZES + ["kill"] * KILLS + ["kill holder"] * KILLED_HOLDERS
    lots.shuffle(deeds)
    for deed in deeds:
        before = time.monotonic_ns()
        time.sleep(lots.uniform(0.0, 0.05))
        if deed == "freeze":
            workers.freeze(lots.choice(workers.running), FREEZE)
        else:
            holder = deed == "kill holder"
            workers.kill(a_holder(workers, lots) if holder else lots.choice(workers.running))
            workers.start(lots.choice(COLOURS))
        until(lambda before=before: len(workers.granted(None, before)) >= GRANTS_BETWEEN)  # type: ignore[misc]


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_and_frozen_processes(seed: int, workers: Workers) -> None:
    tell(seed, workers)


def test_killed_and_frozen_processes_on_redis(tmp_path: Path) -> None:
    with Redis() as server:
        workers = Workers(tmp_path, server.url)
        try:
            tell(3, workers)
        finally:
            workers.end()


def tell(seed: int, workers: Workers) -> None:
    """The whole story, and its proof."""
    for colour in COLOURS * 2:
        workers.start(colour)
    until(lambda: all(workers.granted({worker.pid}) for worker in workers.running))
    torment(workers, random.Random(seed))
    tormented = time.monotonic_ns()
    for worker in workers.running:
        until(lambda worker=worker: workers.granted({worker.pid}, tormented))  # type: ignore[misc]
        assert worker.poll() is None
    while workers.running:
        workers.kill(workers.running[0])
    verdict = check(History.read(workers.history), RULES)
    assert verdict.ok, f"{verdict}\n{workers.complaints()}"
    assert workers.complaints() == ""


@pytest.mark.parametrize("waiter", COLOURS)
@pytest.mark.parametrize("holder", COLOURS)
def test_the_lock_of_a_killed_holder_passes_on_within_a_second(
    holder: str, waiter: str, workers: Workers
) -> None:
    victim = workers.start(holder, "hold", LONG_LEASE)
    assert victim.stdout is not None
    assert victim.stdout.readline() == b"holding\n"
    heir = workers.start(waiter, lease=LONG_LEASE)
    until(lambda: any(r.event is Event.ASKED and r.pid == heir.pid for r in all_of(workers)))
    killed = time.monotonic_ns()
    os.kill(victim.pid, signal.SIGKILL)
    until(lambda: workers.granted({heir.pid}))
    assert min(workers.granted({heir.pid})) - killed < BILLION
    workers.bury(victim)


def all_of(workers: Workers) -> list[Record]:
    return list(read_records(workers.history))
