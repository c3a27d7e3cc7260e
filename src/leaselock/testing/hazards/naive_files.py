"""Locks that are files: one that exists or not, and one that the kernel locks.

Law: no library; what a shell script or a short program does. A URL of SQLite names the folder.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from leaselock.testing.hazards.party import FOREVER, Asking, Grip, NotMine

if TYPE_CHECKING:
    from collections.abc import Iterator


def path_of(url: str, name: str) -> Path:
    """The file of a lock, beside the database that the URL names."""
    return Path(urlsplit(url).path[1:]).parent / f"{quote(name, safe='')}.lock"


class Exclusive(Asking):
    """open(O_CREAT | O_EXCL); unlink."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, name: str, lease: float) -> bool:
        """Make the file."""
        try:
            os.close(os.open(path_of(self.url, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def release(self, name: str) -> None:
        """Remove it, whoever made it."""
        self.held = False
        os.unlink(path_of(self.url, name))

    def close(self) -> None:
        """Nothing is open."""


class Flock:
    """flock(LOCK_EX) on a file that stays, with an alarm against waiting too long; close."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: list[int] = []

    def take(self, name: str, lease: float, *, renew: bool, patience: float) -> Grip | None:
        """Open the file and lock it."""
        file = os.open(path_of(self.url, name), os.O_CREAT | os.O_RDWR)
        try:
            with alarm(patience):
                fcntl.flock(file, fcntl.LOCK_EX | (0 if patience else fcntl.LOCK_NB))
        except (BlockingIOError, InterruptedError):
            os.close(file)
            return None
        self.files.append(file)
        return Grip()

    def release(self, name: str) -> None:
        """Close the file."""
        if not self.files:
            raise NotMine
        os.close(self.files.pop())

    def until(self) -> float:
        """The kernel takes it from nobody."""
        return FOREVER if self.files else 0.0

    def close(self) -> None:
        """Let go of it."""
        while self.files:
            self.release("")


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Interrupt the body after so many seconds; never if that is 0."""

    def ring(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
