"""Processes that hold a lock or wait for it, started and ended by a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from testkit.servers.process import eventually

import leaselock

ROOT = Path(__file__).parents[2]
LOCK = "a"


class Server(Protocol):
    """A store that has a URL."""

    @property
    def url(self) -> str:
        """The URL for a client."""
        ...


class Granted(NamedTuple):
    """The grant that a process reported; nanoseconds of the monotonic clock."""

    at: int
    token: int


class Contender:
    """One process that acquires the lock once."""

    def __init__(self, colour: str, url: str, lease: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.holder", colour, url, LOCK, str(lease)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.read_line() == ["asking"]

    def read_line(self) -> list[str]:
        """Return the next line that the process prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def granted(self) -> Granted:
        """Wait for its grant."""
        word, at, token = self.read_line()
        assert word == "granted"
        return Granted(int(at), int(token))

    def release(self) -> None:
        """Make the process release the lock."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()


class Contest:
    """The contenders of one test, in order of arrival."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = leaselock.Client(server.url)
        self.contenders: list[Contender] = []

    def holder(self, colour: str, lease: float, url: str = "") -> Contender:
        """Start a contender that acquires the lock."""
        contender = Contender(colour, url or self.server.url, lease)
        self.contenders.append(contender)
        return contender

    def waiter(self, colour: str, lease: float, url: str = "") -> Contender:
        """Start a contender, and return when it is in the queue."""
        before = self.waiting()
        contender = self.holder(colour, lease, url)
        eventually(lambda: self.waiting() == before + 1)
        return contender

    def waiting(self) -> int:
        """Return the number of waiters."""
        return len(self.client.lock(LOCK).waiters())

    def end(self) -> None:
        """Kill all contenders."""
        for contender in self.contenders:
            contender.end()
        self.client.close()
