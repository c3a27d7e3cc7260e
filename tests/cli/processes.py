"""Run the command line as a user does, on a database file of its own.

Tests poll, with a deadline, for what other processes do; none sleeps for a guessed time.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.pace import pace

import leaselock
from leaselock._cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

# It only bounds a failure.
LIMIT = 120.0
LOOP = "while :; do sleep 0.02; done"
# These start no process and need no terminal.
IN_PROCESS = ("acquire", "release", "extend", "check", "break", "wait", "ls", "show")
# A shell script that goes on when the file {go} exists.
UNTIL = 'until [ -e "{go}" ]; do sleep 0.02; done'
LEASELOCK = (sys.executable, "-m", "leaselock")


def until(condition: Callable[[], object], limit: float = LIMIT) -> float:
    """Poll until *condition* is true, and return how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit, f"not within {limit} s"
        time.sleep(0.005)
    return time.monotonic() - began


def paced(seconds: float) -> str:
    """Return a duration for the command line that a slow machine keeps, too."""
    return f"{seconds * pace():.3f}s"


def ended(process: subprocess.Popen[str]) -> int:
    """Wait for the end of a process; how it ended."""
    return process.wait(LIMIT)


def gone(pid: int) -> bool:
    """Return whether a process has ended; a zombie has."""
    return state(pid) in ("", "Z")


def stopped(pid: int) -> bool:
    """Return whether a process is stopped."""
    return state(pid) == "T"


def state(pid: int) -> str:
    """Return the state letter of a process; empty when there is no such process."""
    if not os.path.isdir("/proc"):  # macOS
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout[:1]
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def has_word(path: Path) -> bool:
    """Return whether the file holds a complete line."""
    return path.exists() and path.read_text().endswith("\n")


def called(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run ``leaselock`` in this process, a tenth of the time. It must start no other."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", env)
        patch.setattr(sys, "stdin", io.StringIO())
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(words)
            except SystemExit as ended:
                code = int(ended.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


class WrappedCommand(NamedTuple):
    """A command that runs under a lock."""

    wrapper: subprocess.Popen[str]
    pid: int


class Shell:
    """Runs ``leaselock`` in processes, and ends those that are left running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/locks.db"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("LEASELOCK")}
        self.env["LEASELOCK_URL"] = self.url
        self.leaselock: tuple[str, ...] = LEASELOCK
        self.started: list[subprocess.Popen[str]] = []
        self.groups: list[int] = []

    def run(
        self, *words: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end; in this process, if nothing depends on that."""
        if words and words[0] in IN_PROCESS and env is None and not stdin:
            return called(*words, env=self.env)
        return self.process(*words, stdin=stdin, env=env)

    def process(
        self, *words: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end, in a process of its own."""
        return subprocess.run(
            [*self.leaselock, *words],
            env=self.env | (env or {}),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def start(self, *words: str, **options: object) -> subprocess.Popen[str]:
        """Start, and return at once."""
        process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
            [*self.leaselock, *words],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **{"stdin": subprocess.DEVNULL, **options},
        )
        self.started.append(process)
        return process

    def job(
        self, name: str, *options: str, trap: str = "", script: str = "exec sleep 60"
    ) -> WrappedCommand:
        """Start a job that holds *name*, and return once it runs and has set its traps."""
        file = self.folder / f"job{len(self.started)}"
        whole = f'{f"trap {trap}; " if trap else ""}echo $$ > "{file}"; {script}'
        wrapper = self.start("run", *options, name, "--", "sh", "-c", whole)
        return WrappedCommand(wrapper, self.pid_in(file))

    def pid_in(self, file: Path) -> int:
        """Wait for the pid that a process writes into *file*."""
        until(lambda: has_word(file))
        pid = int(file.read_text())
        self.groups.append(pid)
        return pid

    def waiter(self, name: str, *options: str, command: str = "true") -> subprocess.Popen[str]:
        """Start a process that waits for *name*, and return once it is in the queue."""
        before = self.waiting(name)
        process = self.start("run", *options, name, "--", command)
        until(lambda: self.waiting(name) > before)
        return process

    def waiting(self, name: str) -> int:
        """Return the number of waiters for *name*."""
        with leaselock.Client(self.url) as client:
            return len(client.lock(name).waiters())

    def holder(self, name: str) -> leaselock.Holder | None:
        """Return the holder of *name*."""
        with leaselock.Client(self.url) as client:
            return client.lock(name).holder()

    def end(self) -> None:
        """End what the test has left running: each job is a process group."""
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def said(process: subprocess.Popen[str], limit: float = LIMIT) -> tuple[int, str]:
    """Wait for a process, and return its exit code and its stderr."""
    _, errors = process.communicate(timeout=limit)
    return process.returncode, errors
