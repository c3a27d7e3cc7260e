"""A private server process of a test, which can be started, frozen, killed and stopped.

Invariant: no server outlives the tests. Each is stopped by the code that started it. Where
`setpriv` is available, a server also dies with the thread that started it, so start it in a thread
that lives long enough. If a program is not installed, the test is skipped with a reason that begins
with "no server".
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
from testkit.servers import versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
# These only limit the duration of a failure.
START_TIMEOUT = 120.0
STOP_TIMEOUT = 60.0
# The same environment for servers however the run was started. Java needs a UTF-8 locale to open a
# file whose path is not ASCII.
SETTLED = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


class Location(NamedTuple):
    """Where a program runs: its address, and the command prefix that starts it there."""

    host: str
    enter: tuple[str, ...] = ()


HERE = Location(HOST)


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections, and that no other process gets in the meantime."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


def program(name: str, *elsewhere: str) -> str:
    """Return the path of a program: that of the chosen version, or the installed one, which may be
    in one of the folders *elsewhere*.
    """
    path = versions.program(name) or shutil.which(name)
    for folder in elsewhere:
        path = path or shutil.which(name, path=folder)
    if path is None:
        pytest.skip(f"no server: {name} is not installed")
    return path


def eventually(condition: Callable[[], object], timeout: float = START_TIMEOUT) -> None:
    """Poll until *condition* is true; raise AssertionError after *timeout* seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def accepts(port: int) -> bool:
    """Return whether a server accepts connections on *port*."""
    try:
        socket.create_connection((HOST, port), 1.0).close()
    except OSError:
        return False
    return True


class Process:
    """One running program, its output in a file."""

    def __init__(self, command: Sequence[str], log: Path, location: Location = HERE) -> None:
        command = self.command = [*location.enter, *command]
        self.log = log
        bound = shutil.which("setpriv")
        with open(log, "ab") as output:
            self.popen = subprocess.Popen(
                [bound, "--pdeathsig", "KILL", "--", *command] if bound else self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | SETTLED | versions.environment(),
            )

    @property
    def alive(self) -> bool:
        """Whether the process runs or is frozen."""
        return self.popen.poll() is None

    def ready(self, condition: Callable[[], object]) -> bool:
        """Wait until *condition* is true; return False if the process ended before."""
        eventually(lambda: not self.alive or condition())
        return self.alive

    def pause(self) -> None:
        """Freeze the process, and return when it has stopped."""
        self.popen.send_signal(signal.SIGSTOP)
        eventually(lambda: self.state() == "T")

    def cont(self) -> None:
        """Continue the frozen process."""
        self.popen.send_signal(signal.SIGCONT)

    def state(self) -> str:
        """Return the state letter of the process in /proc."""
        with open(f"/proc/{self.popen.pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    def kill(self) -> None:
        """Kill the process."""
        if self.alive:
            self.popen.kill()
        self.popen.wait()

    def stop(self) -> None:
        """Terminate the process, frozen or not; kill it if it does not end in time."""
        if self.alive:
            self.popen.terminate()
            self.cont()
        try:
            self.popen.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()

    def output(self) -> str:
        """Return the output so far."""
        return self.log.read_text(errors="replace")
