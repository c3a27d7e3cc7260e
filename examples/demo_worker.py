"""One of the processes of demo.py: it increments the number in a file in a loop.

The ledger does what a fenced resource must do: it stores the greatest fencing token that it has
seen and rejects a write with a smaller one. It cannot prevent two programs from reading the same
number and both writing the next one. That requires a lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import leaselock
from leaselock.testing.recorder import Recorder

if TYPE_CHECKING:
    from leaselock.testing.recorder import Attempt

LOCK = "ledger"
WORK = 0.001
ENTRY_SIZE = 42


class Entry(NamedTuple):
    """The content of the file."""

    number: int
    token: int


class Ledger:
    """A number in a file, and the greatest token of its writers."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self) -> Entry:
        """Return the present content."""
        fcntl.flock(self.file, fcntl.LOCK_SH)
        try:
            return self._entry()
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def write(self, number: int, token: int) -> bool:
        """Write *number*; return False, without a change, if a greater token has written."""
        fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            if token < self._entry().token:
                return False
            os.pwrite(self.file, f"{number:20} {token:20}\n".encode(), 0)
            return True
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def _entry(self) -> Entry:
        return Entry(*map(int, os.pread(self.file, ENTRY_SIZE, 0).split() or (0, 0)))


class Worker:
    """The program whose updates must not be lost."""

    def __init__(self, folder: str, until: float) -> None:
        self.ledger = Ledger(os.path.join(folder, "ledger"))
        self.recorder = Recorder(os.path.join(folder, "history"))
        self.until = until
        self.updates = 0

    def without_lock(self) -> None:
        """Update the ledger without a lock."""
        while time.monotonic() < self.until:
            number = self.ledger.read().number
            time.sleep(WORK)
            self.updates += self.ledger.write(number + 1, 0)

    def with_lock(self, lock: leaselock.Lock, until: float) -> None:
        """Update the ledger while holding the lock. The recorder is only for the checker."""
        while time.monotonic() < until:
            attempt = self.recorder.acquiring(LOCK)
            with lock as lease:
                granted(attempt, lease)
                number = self.ledger.read().number
                time.sleep(WORK)
                self.write(attempt, number + 1, lease.token)
                attempt.releasing()
            attempt.released()

    def write(self, attempt: Attempt, number: int, token: int) -> bool:
        """Write, and record the result."""
        attempt.writing()
        written = self.ledger.write(number, token)
        if written:
            attempt.write_done(number)
            self.updates += 1
        else:
            attempt.write_rejected()
        return written

    def wait_for_kill(self, lock: leaselock.Lock) -> None:
        """Acquire the lock and wait for SIGKILL."""
        attempt = self.recorder.acquiring(LOCK)
        with lock as lease:
            granted(attempt, lease)
            send(holding=lease.token)
            signal.pause()

    def outlive_lease(self, lock: leaselock.Lock) -> None:
        """Acquire the lock, get stopped until the lease has ended, and write nevertheless."""
        attempt = self.recorder.acquiring(LOCK)
        lease = lock.acquire()
        assert lease is not None
        granted(attempt, lease)
        number = self.ledger.read().number
        send(holding=lease.token)
        sys.stdin.readline()  # stopped here, and continued much later
        loss = loss_of(lease)
        if loss:
            attempt.lost()
        # A careful program would stop here. This one writes, and its token causes the rejection.
        send(loss=loss, rejected=not self.write(attempt, number + 1, lease.token))
        attempt.releasing()
        try:
            lease.release()
        except leaselock.LeaseLost:
            attempt.release_lost()
        else:
            attempt.released()


def granted(attempt: Attempt, lease: leaselock.Lease) -> None:
    """Record a grant, and until when it is valid."""
    now = time.monotonic_ns()
    attempt.granted(lease.token, valid_until=now + round(lease.remaining * 1e9))


def loss_of(lease: leaselock.Lease) -> str:
    """Return why the lease is lost, or an empty string."""
    try:
        lease.ensure()
    except leaselock.LeaseLost as lost:
        return lost.reason
    return ""


def send(**message: object) -> None:
    """Send a message to demo.py."""
    print(json.dumps(message), flush=True)


def main(role: str, folder: str) -> None:
    """Work in *role*, from when demo.py says until when, and when the fault is injected."""
    send(ready=role)
    until, fault_at, lease = map(float, sys.stdin.readline().split())
    worker = Worker(folder, until)
    if role == "unlocked":
        worker.without_lock()
    else:
        with leaselock.Client(label="demo") as client:  # no URL: the embedded store
            if role in ("killed", "stopped"):
                worker.with_lock(client.lock(LOCK), fault_at)
            if role == "killed":
                worker.wait_for_kill(client.lock(LOCK))
            if role == "stopped":
                worker.outlive_lease(client.lock(LOCK, lease=lease))
            worker.with_lock(client.lock(LOCK), until)
    send(updates=worker.updates)


if __name__ == "__main__":
    main(*sys.argv[1:])
