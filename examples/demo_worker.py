"""One of the processes of demo.py: it adds 1 to the number in a file, again and again.

Law: the ledger does what a careful resource does. It remembers the newest fencing token that it
has seen and refuses a write that brings an older one. It cannot prevent that two programs read
the same number and both write the next one: that takes a lock.
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
    """What the file says."""

    number: int
    token: int


class Ledger:
    """A number in a file, and the newest token that was shown to it."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self) -> Entry:
        """What the file says now."""
        fcntl.flock(self.file, fcntl.LOCK_SH)
        try:
            return self._entry()
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def write(self, number: int, token: int) -> bool:
        """Put *number* in the file; False, and no change, when *token* is an old one."""
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
    """The program whose updates must not get lost."""

    def __init__(self, folder: str, until: float) -> None:
        self.ledger = Ledger(os.path.join(folder, "ledger"))
        self.recorder = Recorder(os.path.join(folder, "history"))
        self.until = until
        self.updates = 0

    def without_lock(self) -> None:
        """Update with nothing in between."""
        while time.monotonic() < self.until:
            number = self.ledger.read().number
            time.sleep(WORK)
            self.updates += self.ledger.write(number + 1, 0)

    def with_lock(self, lock: leaselock.Lock, until: float) -> None:
        """Update under the lock. The recorder is only for the proof: a program needs none."""
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
        """One write, and a record of what became of it."""
        attempt.writing()
        written = self.ledger.write(number, token)
        if written:
            attempt.write_done(number)
            self.updates += 1
        else:
            attempt.write_rejected()
        return written

    def be_killed(self, lock: leaselock.Lock) -> None:
        """Take the lock and never give it back."""
        attempt = self.recorder.acquiring(LOCK)
        with lock as lease:
            granted(attempt, lease)
            tell(holding=lease.token)
            signal.pause()

    def be_stopped(self, lock: leaselock.Lock) -> None:
        """Take the lock, be stopped while the lease runs out, and go on as if nothing was."""
        attempt = self.recorder.acquiring(LOCK)
        lease = lock.acquire()
        assert lease is not None
        granted(attempt, lease)
        number = self.ledger.read().number
        tell(holding=lease.token)
        sys.stdin.readline()  # stopped here, and continued much later
        loss = loss_of(lease)
        if loss:
            attempt.lost()
        # A program that did look would end here. The careless one is stopped by its token.
        tell(loss=loss, refused=not self.write(attempt, number + 1, lease.token))
        attempt.releasing()
        try:
            lease.release()
        except leaselock.LeaseLost:
            attempt.release_lost()
        else:
            attempt.released()


def granted(attempt: Attempt, lease: leaselock.Lease) -> None:
    """Record a grant, and until when its holder may believe in it."""
    now = time.monotonic_ns()
    attempt.granted(lease.token, valid_until=now + round(lease.remaining * 1e9))


def loss_of(lease: leaselock.Lease) -> str:
    """Why the lease is lost; empty while it is not."""
    try:
        lease.ensure()
    except leaselock.LeaseLost as lost:
        return lost.reason
    return ""


def tell(**words: object) -> None:
    """Say something to demo.py."""
    print(json.dumps(words), flush=True)


def main(role: str, folder: str, until: float, fate: float, lease: float) -> None:
    """Play *role* until *until*; at *fate* comes what is to come."""
    worker = Worker(folder, until)
    if role == "unlocked":
        worker.without_lock()
    else:
        with leaselock.Client(label="demo") as client:  # no URL: the embedded store
            if role in ("killed", "stopped"):
                worker.with_lock(client.lock(LOCK), fate)
            if role == "killed":
                worker.be_killed(client.lock(LOCK))
            if role == "stopped":
                worker.be_stopped(client.lock(LOCK, lease=lease))
            worker.with_lock(client.lock(LOCK), until)
    tell(updates=worker.updates)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
