"""A client of a SQLite file in a process of its own, for tests to order about and to kill.

It reads orders line by line and answers each by one line: `ask NAME`, `wait NAME`, `leave NAME`.
Or it is no client at all: `transaction` begins one on the file, and leaves it open.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from leaselock.backends.sqlite.file import File
from leaselock.backends.sqlite.store import Listener, Store
from leaselock.core.backend import (
    Acquire,
    Claim,
    Grant,
    Inspect,
    Listen,
    LockState,
    Release,
    Released,
)
from leaselock.drivers.system_env import now

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).parents[2]
LEASE = 60.0


def claim(client: str, name: str, serial: int = 1) -> Claim:
    return Claim(name, f"{client}:{serial}", client, LEASE, "a test", 0.0)


class Client:
    """A client in this process."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.file = File(str(path), now)
        self.store = Store(self.file)
        self.ear = Listener(self.file)

    def call(self, request: object, patience: float = 5.0) -> object:
        return self.store.call(request, now() + patience)

    def ask(self, name: str, *, wait: bool = False, patience: float = 5.0) -> int | None:
        """The token of the grant, if it is one."""
        reply = self.call(Acquire(claim(self.name, name), wait), patience)
        return reply.token if isinstance(reply, Grant) else None

    def leave(self, name: str) -> str:
        """What the claim was."""
        reply = self.call(Release(claim(self.name, name), False))
        assert isinstance(reply, Released)
        return reply.was

    def close(self) -> None:
        self.store.close()


def sight(client: Client, name: str) -> LockState:
    """What the file says of one lock."""
    sights = client.call(Inspect(name, "*"))
    assert isinstance(sights, tuple)
    found: LockState = sights[0]
    return found


def heard(client: Client) -> object:
    """What a client hears, which must come at once."""
    began = time.monotonic()
    words = client.ear.call(Listen(client.name), 0.0)
    assert time.monotonic() - began < 1.0
    return words


class Process:
    """A client in another process."""

    def __init__(self, path: Path, name: str) -> None:
        self.running = subprocess.Popen(
            [sys.executable, "-m", "tests.models.process", str(path), name],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, words: str) -> str:
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        self.running.stdin.write(words + "\n")
        self.running.stdin.flush()
        return self.running.stdout.readline().strip()

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()

    def stop(self) -> None:
        self.running.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.running.pid, os.WSTOPPED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        self.running.stdin.close()
        self.running.stdout.close()


def obey(client: Client, database: sqlite3.Connection, words: str) -> str:
    order, _, name = words.partition(" ")
    if order == "transaction":
        database.execute("BEGIN IMMEDIATE")
        return "begun"
    if order == "end":
        database.execute("ROLLBACK")
        return "ended"
    if order == "leave":
        return client.leave(name)
    token = client.ask(name, wait=order == "wait")
    return "busy" if token is None else str(token)


def main(path: str, name: str) -> None:
    client = Client(Path(path), name)
    database = sqlite3.connect(path, isolation_level=None)
    for line in sys.stdin:
        print(obey(client, database, line.rstrip("\n")), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
