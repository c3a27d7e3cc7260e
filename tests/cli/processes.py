"""The command line as people run it: a process of its own, on a file of its own.

What other processes do is waited for by looking, with a deadline; no test sleeps a guess.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 20.0
LOOP = "while :; do sleep 0.02; done"
LEASELOCK = (sys.executable, "-m", "leaselock")


def until(condition: Callable[[], object], limit: float = LIMIT) -> float:
    """Wait for *condition*, which other processes bring about; how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit, f"not within {limit} s"
        time.sleep(0.005)
    return time.monotonic() - began


def gone(pid: int) -> bool:
    """Whether a process has ended; one that waits to be reaped has."""
    return state(pid) in ("", "Z")


def stopped(pid: int) -> bool:
    """Whether a process is stopped."""
    return state(pid) == "T"


def state(pid: int) -> str:
    """The letter that the system has for what a process does; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def has_word(path: Path) -> bool:
    """Whether somebody has written a whole line into the file."""
    return path.exists() and path.read_text().endswith("\n")


class Job(NamedTuple):
    """A command that runs under a lock."""

    wrapper: subprocess.Popen[str]
    pid: int


class Shell:
    """Runs ``leaselock`` in processes, and ends those that are left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/locks.db"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("LEASELOCK")}
        self.env["LEASELOCK_URL"] = self.url
        self.started: list[subprocess.Popen[str]] = []
        self.groups: list[int] = []

    def run(
        self, *words: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        return subprocess.run(
            [*LEASELOCK, *words],
            env=self.env | (env or {}),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def start(self, *words: str, **options: object) -> subprocess.Popen[str]:
        """Start, and go on."""
        process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
            [*LEASELOCK, *words],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **{"stdin": subprocess.DEVNULL, **options},
        )
        self.started.append(process)
        return process

    def job(self, name: str, *options: str, trap: str = "", script: str = "exec sleep 60") -> Job:
        """Start a job that holds *name*, and return when its traps are set, if it has any."""
        file = self.folder / f"job{len(self.started)}"
        whole = f'{f"trap {trap}; " if trap else ""}echo $$ > "{file}"; {script}'
        wrapper = self.start("run", *options, name, "--", "sh", "-c", whole)
        return Job(wrapper, self.pid_in(file))

    def pid_in(self, file: Path) -> int:
        """The number of the process that writes it into *file*."""
        until(lambda: has_word(file))
        pid = int(file.read_text())
        self.groups.append(pid)
        return pid

    def waiter(self, name: str, *options: str, command: str = "true") -> subprocess.Popen[str]:
        """Start one that waits for *name*, and return when it does."""
        before = self.waiting(name)
        process = self.start("run", *options, name, "--", command)
        until(lambda: self.waiting(name) > before)
        return process

    def waiting(self, name: str) -> int:
        """How many wait for *name*."""
        with leaselock.Client(self.url) as client:
            return len(client.lock(name).waiters())

    def holder(self, name: str) -> leaselock.Holder | None:
        """Who holds *name*."""
        with leaselock.Client(self.url) as client:
            return client.lock(name).holder()

    def end(self) -> None:
        """End what a test has left running: jobs are process groups of their own."""
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def said(process: subprocess.Popen[str], limit: float = LIMIT) -> tuple[int, str]:
    """How a process ended, and what it said on stderr."""
    _, errors = process.communicate(timeout=limit)
    return process.returncode, errors
