"""Processes that hold and wait, started and ended by a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.servers.process import eventually

import leaselock

ROOT = Path(__file__).parents[2]
LOCK = "a"


class Place(Protocol):
    """A store that has a URL."""

    @property
    def url(self) -> str:
        """How a client names it."""
        ...


class Granted(NamedTuple):
    """What a process said of its grant; nanoseconds of the monotonic clock."""

    at: int
    token: int


class Person:
    """One process."""

    def __init__(self, colour: str, url: str, lease: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.holder", colour, url, LOCK, str(lease)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.await_wakeup() == ["asking"]

    def await_wakeup(self) -> list[str]:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def granted(self) -> Granted:
        """Wait for its grant."""
        word, at, token = self.await_wakeup()
        assert word == "granted"
        return Granted(int(at), int(token))

    def give_back(self) -> None:
        """Have it release."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()


class Street:
    """The people of one test, in the order in which they came."""

    def __init__(self, server: Place) -> None:
        self.server = server
        self.client = leaselock.Client(server.url)
        self.people: list[Person] = []

    def holder(self, colour: str, lease: float, url: str = "") -> Person:
        """Somebody who has the lock."""
        person = Person(colour, url or self.server.url, lease)
        self.people.append(person)
        return person

    def waiter(self, colour: str, lease: float, url: str = "") -> Person:
        """Somebody who waits for it, behind those who came before."""
        before = self.waiting()
        person = self.holder(colour, lease, url)
        eventually(lambda: self.waiting() == before + 1)
        return person

    def waiting(self) -> int:
        """How many wait."""
        return len(self.client.lock(LOCK).waiters())

    def end(self) -> None:
        """All end."""
        for person in self.people:
            person.end()
        self.client.close()
