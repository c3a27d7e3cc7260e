"""Processes of the tests on Windows, with a console of their own or without any."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from testkit.polling import poll_until
from tests.cli import processes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# CREATE_NO_WINDOW: a console without a window.
HIDDEN_CONSOLE = 0x08000000


class Shell(processes.Shell):
    """Runs `leaselock` in processes, and ends those that are left running."""

    def python(self, program: str, *words: str) -> list[str]:
        """Return the command that runs a program of Python."""
        return [sys.executable, "-c", program, *words]

    def sleeper(self, file: Path) -> list[str]:
        """Return a command that creates a file, and then runs until it is ended."""
        program = "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\ntime.sleep(600)"
        return self.python(program, str(file))

    def start_job(self, name: str, *options: str, **more: object) -> subprocess.Popen[str]:
        """Start a job that holds *name*, and return once it runs."""
        file = self.folder / f"job{len(self.started)}"
        wrapper = self.start("run", *options, name, "--", *self.sleeper(file), **more)
        wait_until(lambda: file.exists() or wrapper.poll() is not None)
        assert wrapper.poll() is None, wrapper.communicate()
        return wrapper

    def start_waiter(self, name: str, *options: str) -> subprocess.Popen[str]:
        """Start a process that waits for *name*, and return once it is in the queue."""
        before = self.waiting(name)
        process = self.start("run", *options, name, "--", *self.python("pass"))
        wait_until(lambda: self.waiting(name) > before)
        return process

    def on_console(self, *words: str) -> subprocess.Popen[str]:
        """Start `leaselock` on a console that nothing else uses. The word "ctrl-c" on stdin is
        Ctrl-C for all its processes; the exit code is that of `leaselock`.
        """
        command = [sys.executable, "-m", "verification.windows.console", *words]
        process = subprocess.Popen(
            command,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            creationflags=HIDDEN_CONSOLE,
        )
        self.started.append(process)
        return process


def press_ctrl_c(process: subprocess.Popen[str]) -> tuple[int, str, float]:
    """Press Ctrl-C on the console of a process; return its exit code, what it wrote to stderr, and
    the seconds to its end.
    """
    began = time.monotonic()
    _, errors = process.communicate("ctrl-c\n", timeout=processes.LIMIT)
    return process.returncode, errors, time.monotonic() - began


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until *condition* is true; AssertionError if that takes too long."""
    assert poll_until(condition, processes.LIMIT), f"not within {processes.LIMIT:g} s"
