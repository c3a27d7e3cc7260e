"""One server process, on this machine, for these tests only: started, frozen, killed, ended by pid.

Law: nothing outlives the tests. Whoever starts a server ends it; and where the kernel can promise
it (`setpriv`), a server dies with the thread that started it, so start it in a thread that stays.
A program that is not installed is a skip whose reason begins with "no server".
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
# They only bound a failure.
START_PATIENCE = 120.0
STOP_PATIENCE = 60.0
# Servers behave alike wherever the run was started. Java needs a locale that knows UTF-8 to open a
# file whose path has other letters than ASCII.
SETTLED = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


class Place(NamedTuple):
    """Where a program runs: its address there, and what gets it in."""

    host: str
    enter: tuple[str, ...] = ()


HERE = Place(HOST)


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def program(name: str, *elsewhere: str) -> str:
    """The path of an installed program, perhaps in one of the folders *elsewhere*."""
    path = shutil.which(name)
    for folder in elsewhere:
        path = path or shutil.which(name, path=folder)
    if path is None:
        pytest.skip(f"no server: {name} is not installed")
    return path


def eventually(condition: Callable[[], object], patience: float = START_PATIENCE) -> None:
    """Look until *condition* holds; AssertionError when it does not in time."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def accepts(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection((HOST, port), 1.0).close()
    except OSError:
        return False
    return True


class Process:
    """One running program, its output in a file."""

    def __init__(self, command: Sequence[str], log: Path, place: Place = HERE) -> None:
        command = self.command = [*place.enter, *command]
        self.log = log
        bound = shutil.which("setpriv")
        with open(log, "ab") as output:
            self.popen = subprocess.Popen(
                [bound, "--pdeathsig", "KILL", "--", *command] if bound else self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | SETTLED,
            )

    @property
    def alive(self) -> bool:
        """Whether it runs (or is frozen)."""
        return self.popen.poll() is None

    def ready(self, condition: Callable[[], object]) -> bool:
        """Wait until *condition* holds; False when the process ended before."""
        eventually(lambda: not self.alive or condition())
        return self.alive

    def pause(self) -> None:
        """Freeze it; returns when it has stopped."""
        self.popen.send_signal(signal.SIGSTOP)
        eventually(lambda: self.state() == "T")

    def cont(self) -> None:
        """Let it go on."""
        self.popen.send_signal(signal.SIGCONT)

    def state(self) -> str:
        """The kernel's letter for what it is doing."""
        with open(f"/proc/{self.popen.pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    def kill(self) -> None:
        """End it without warning."""
        if self.alive:
            self.popen.kill()
        self.popen.wait()

    def stop(self) -> None:
        """End it in order, frozen or not; by force if it does not listen."""
        if self.alive:
            self.popen.terminate()
            self.cont()
        try:
            self.popen.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def told(self) -> str:
        """What it has said so far."""
        return self.log.read_text(errors="replace")
