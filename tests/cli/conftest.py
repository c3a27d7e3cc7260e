"""The command line as people run it: a process of its own, on a file of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 20.0


class Shell:
    """Runs ``holdfast`` in processes, and ends those that are left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST")}
        self.env["HOLDFAST_URL"] = f"sqlite:///{folder}/locks.db"
        self.started: list[subprocess.Popen[str]] = []

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start, and go on."""
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def holding(
        self, name: str, *options: str, job: str = "exec sleep 60"
    ) -> subprocess.Popen[str]:
        """Start a job that holds *name*, and return when it runs; its pid is in ``job.pid``."""
        pid = self.folder / "job.pid"
        pid.unlink(missing_ok=True)
        script = f"echo $$ > {pid}.new; mv {pid}.new {pid}; {job}"
        process = self.start("run", *options, name, "--", "sh", "-c", script)
        self.until(pid.exists)
        return process

    def job_pid(self) -> int:
        """The process of the job that was started last."""
        return int((self.folder / "job.pid").read_text())

    def until(self, condition: Callable[[], bool], limit: float = LIMIT) -> float:
        """Wait for *condition*; how long it took."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < limit, f"not within {limit} s: {condition}"
            time.sleep(0.005)  # what is waited for is in other processes
        return time.monotonic() - began

    def end(self) -> None:
        """End what a test has left running: jobs are process groups of their own."""
        if (self.folder / "job.pid").exists():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.job_pid(), signal.SIGKILL)
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


def gone(pid: int) -> bool:
    """Whether a process has ended; one that waits to be reaped has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.end()
