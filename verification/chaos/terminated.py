"""`python -m verification.chaos.terminated --kills 1000`: processes that wait for one lock are
killed at random moments, one after the other, on SQLite; their records are checked.

It runs on Windows, too, where a kill is TerminateProcess. Each process writes a line to a file of
its own when it is granted the lock, and another one before it releases it. A killed holder holds
until the kill: no other grant may come before, and no token may repeat. All times are those of
`perf_counter`, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import leaselock

PROGRAM = "verification.chaos.terminated"
NAME = "a"
WAITERS = 6
# Far longer than a run waits: a lock is free because its holder has ended, not its lease.
LEASE = 600.0
LONGEST_HOLD = 0.02
LIMIT = 600.0
NEVER = float("inf")
MILLION = 1_000_000


class Grant(NamedTuple):
    """One hold, with the times in nanoseconds."""

    token: int
    granted: int
    pid: int
    ended: int | None
    """Before the release; None if the process was killed before."""


class Result(NamedTuple):
    """What was seen."""

    kills: int
    grants: int
    holders: list[int]
    """For each killed holder, the nanoseconds until the next grant."""
    violations: list[str]

    def __str__(self) -> str:
        waits = sorted(self.holders)
        text = f"{self.kills} kills, {self.grants} grants, {len(self.violations)} violations"
        if not waits:
            return text
        named = {"median": waits[len(waits) // 2], "99 %": waits[len(waits) * 99 // 100]}
        named["longest"] = waits[-1]
        times = ", ".join(f"{name} {wait / MILLION:.1f} ms" for name, wait in named.items())
        return f"{text}; {len(waits)} of the killed held the lock; until the next grant: {times}"


def work(url: str, file: str) -> None:
    """Acquire and release the lock until this process is killed."""
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    lock = leaselock.Client(url).lock(NAME, lease=LEASE)
    while True:
        try:
            lease = lock.acquire()
        except leaselock.StoreError:  # the machine is too slow for a request
            continue
        os.write(log, b"+%d %d\n" % (lease.token, time.perf_counter_ns()))
        time.sleep(random.uniform(0.0, LONGEST_HOLD))
        os.write(log, b"-%d %d\n" % (lease.token, time.perf_counter_ns()))
        with suppress(leaselock.StoreError):
            lease.release()


class Run:
    """The processes of one run."""

    def __init__(self, folder: Path, waiters: int) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder.as_posix()}/locks.db"
        self.started = 0
        self.kills: list[tuple[int, int]] = []
        self.files: dict[int, Path] = {}
        self.running = [self.start() for _ in range(waiters)]

    def start(self) -> subprocess.Popen[bytes]:
        """Start a process."""
        file = self.folder / f"log{self.started}"
        file.touch()
        self.started += 1
        command = [sys.executable, "-m", PROGRAM, "--work", self.url, str(file)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.files[process.pid] = file
        return process

    def size(self) -> int:
        """Return how much the running processes have written."""
        return sum(file.stat().st_size for file in self.files.values())

    def await_progress(self) -> None:
        """Wait until a process has written something; AssertionError if none does."""
        before, deadline = self.size(), time.monotonic() + LIMIT
        while self.size() == before:
            assert time.monotonic() < deadline, f"no grant within {LIMIT:g} s"
            assert all(process.poll() is None for process in self.running), "a process has failed"
            time.sleep(0.001)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process, and note when."""
        number = int(self.files.pop(process.pid).name[3:])
        self.kills.append((number, time.perf_counter_ns()))
        process.kill()
        process.wait()

    def end(self) -> None:
        """Kill all that are left."""
        for process in self.running:
            self.kill(process)


def grants_of(folder: Path) -> list[Grant]:
    """Return all grants in the order of their times."""
    grants = []
    for file in folder.glob("log*"):
        opened: dict[int, int] = {}
        number = int(file.name[3:])
        for line in file.read_bytes().split(b"\n")[:-1]:
            token, instant = map(int, line[1:].split())
            if line.startswith(b"+"):
                opened[token] = instant
            else:
                grants.append(Grant(token, opened.pop(token), number, instant))
        grants += [Grant(token, instant, number, None) for token, instant in opened.items()]
    return sorted(grants, key=lambda grant: grant.granted)


def judged(grants: list[Grant], kills: list[tuple[int, int]]) -> Result:
    """Check the grants; each killed process has its time in *kills*."""
    killed = dict(kills)
    waits, violations = [], []
    for grant, following in pairwise(grants):
        if following.token <= grant.token:
            violations.append(f"token {following.token} was granted after {grant.token}")
        ended = grant.ended if grant.ended is not None else killed[grant.pid]
        if following.granted < ended:
            early = (ended - following.granted) / MILLION
            violations.append(
                f"{following.token} was granted {early:.3f} ms before {grant.token} ended"
            )
        if grant.ended is None:
            waits.append(following.granted - ended)
    return Result(len(kills), len(grants), waits, violations)


def run(
    kills: int, folder: Path, seed: int, waiters: int = WAITERS, seconds: float = NEVER
) -> Result:
    """Kill processes for at most *seconds*, start another one for each, and check what they have
    written.
    """
    rng, deadline = random.Random(seed), time.monotonic() + seconds
    pool = Run(folder, waiters)
    try:
        for _ in range(kills):
            pool.await_progress()
            time.sleep(rng.uniform(0.0, 2 * LONGEST_HOLD))
            victim = rng.randrange(waiters)
            pool.kill(pool.running[victim])
            pool.running[victim] = pool.start()
            if time.monotonic() > deadline:
                break
        pool.await_progress()
    finally:
        pool.end()
    return judged(grants_of(folder), pool.kills)


def main() -> None:
    """Run it, and print the result; exit 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=NEVER, help="end after that time")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(*given.work)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        result = run(given.kills, Path(folder), given.seed, seconds=given.seconds)
    print(result)
    print(*result.violations, sep="\n")
    sys.exit(1 if result.violations else 0)


if __name__ == "__main__":
    main()
