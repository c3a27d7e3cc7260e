"""Recipes with files: a lock file that exists or not, and a file locked by the kernel.

They use no library, like a shell script. The folder is that of the SQLite URL.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from verification.hazards.lock_program import FOREVER, Grant, NotOwner, PollingProgram

if TYPE_CHECKING:
    from collections.abc import Iterator


def path_of(url: str, name: str) -> Path:
    """Return the lock file of *name*, in the folder of the URL."""
    return Path(urlsplit(url).path[1:]).parent / f"{quote(name, safe='')}.lock"


class Exclusive(PollingProgram):
    """open(O_CREAT | O_EXCL); unlink."""

    def __init__(self, url: str) -> None:
        self.url = url

    def try_acquire(self, name: str, lease: float) -> bool:
        """Create the file."""
        try:
            os.close(os.open(path_of(self.url, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def release(self, name: str) -> None:
        """Remove the file without checking its owner."""
        self.held = False
        os.unlink(path_of(self.url, name))

    def close(self) -> None:
        """Nothing is open."""


class Flock:
    """flock(LOCK_EX) on a permanent file, with an alarm as timeout; close."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: list[int] = []

    def acquire(self, name: str, lease: float, *, renew: bool, timeout: float) -> Grant | None:
        """Open the file and lock it."""
        file = os.open(path_of(self.url, name), os.O_CREAT | os.O_RDWR)
        try:
            with alarm(timeout):
                fcntl.flock(file, fcntl.LOCK_EX | (0 if timeout else fcntl.LOCK_NB))
        except (BlockingIOError, InterruptedError):
            os.close(file)
            return None
        self.files.append(file)
        return Grant()

    def release(self, name: str) -> None:
        """Close the file."""
        if not self.files:
            raise NotOwner
        os.close(self.files.pop())

    def valid_until(self) -> float:
        """Return FOREVER: the kernel does not end the lock of a living process."""
        return FOREVER if self.files else 0.0

    def close(self) -> None:
        """Close all files."""
        while self.files:
            self.release("")


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Interrupt the body after *seconds*; never if 0."""

    def ring(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
