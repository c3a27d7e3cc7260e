"""A client of a SQLite file in a separate process, which tests control and kill.

It reads one order a line, and answers each with a line: `acquire NAME`, `wait NAME`,
`release NAME`.
`transaction` only begins a transaction on the file, and `end` rolls it back.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from tests.pace import pace

from leaselock._backends.sqlite.file import File
from leaselock._backends.sqlite.store import Listener, Store
from leaselock._core.contract.backend import (
    Acquire,
    Claim,
    Grant,
    Inspect,
    Listen,
    LockState,
    Release,
    Released,
)
from leaselock._core.contract.effects import Signal
from leaselock._drivers.system_env import now

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
        self.listener = Listener(self.file)

    def call(self, request: object, timeout: float = 5.0) -> object:
        return self.store.call(request, now() + timeout)

    def acquire(self, name: str, *, wait: bool = False, timeout: float = 5.0) -> int | None:
        """Acquire a lock; return the token of the grant, or None."""
        reply = self.call(Acquire(claim(self.name, name), wait), timeout)
        return reply.token if isinstance(reply, Grant) else None

    def release(self, name: str) -> str:
        """Release the claim; return what it was."""
        reply = self.call(Release(claim(self.name, name), False))
        assert isinstance(reply, Released)
        return reply.was

    def close(self) -> None:
        self.store.close()


def inspect(client: Client, name: str) -> LockState:
    """Return the state of a lock in the file."""
    states = client.call(Inspect(name, "*"))
    assert isinstance(states, tuple)
    found: LockState = states[0]
    return found


def heard(client: Client) -> object:
    """Return the messages to a client, which must arrive at once."""
    began = time.monotonic()
    words = client.listener.call(Listen(client.name, Signal()), now() + 60.0)
    assert time.monotonic() - began < pace()
    return words


class Process:
    """A client in another process."""

    def __init__(self, path: Path, name: str) -> None:
        self.running = subprocess.Popen(
            [sys.executable, "-m", "verification.models.process", str(path), name],
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

    def __exit__(self, *_: object) -> None:
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
    if order == "release":
        return client.release(name)
    token = client.acquire(name, wait=order == "wait")
    return "busy" if token is None else str(token)


def main(path: str, name: str) -> None:
    client = Client(Path(path), name)
    database = sqlite3.connect(path, isolation_level=None)
    for line in sys.stdin:
        print(obey(client, database, line.rstrip("\n")), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
