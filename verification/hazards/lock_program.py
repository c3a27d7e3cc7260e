"""The interface of the programs under test: leaselock and the naive recipes.

A program uses one locking method, with connections of its own. It does what the recipe says and no
more: where the recipe does not check a result, neither does the program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

from testkit.polling import poll_until

FOREVER = float("inf")
POLL_INTERVAL = 0.05
# Seconds that a program waits for one reply of its store.
REPLY_TIMEOUT = 1.0


class NotOwner(Exception):
    """Raised by a recipe that checks ownership, on a release without holding the lock."""


class Grant(NamedTuple):
    """An acquired lock; *token* is None if the method has no tokens."""

    token: int | None = None


class LockProgram(Protocol):
    """A program that uses one locking method. It raises the errors that the method raises."""

    def acquire(self, name: str, lease: float, *, renew: bool, timeout: float) -> Grant | None:
        """Acquire the lock, waiting as this method does for at most *timeout* seconds; 0 tries
        once. Return None when the lock is held by another.
        """
        ...

    def release(self, name: str) -> None:
        """Do what this method does to release, whether or not the program holds the lock."""
        ...

    def valid_until(self) -> float:
        """Return until when the program considers its hold valid, on the boot clock: FOREVER if it
        has no way of knowing, 0 if it knows that it does not hold the lock.
        """
        ...

    def close(self) -> None:
        """Close the connections in an orderly way."""
        ...


class PollingProgram(ABC):
    """Waits by polling, as most recipes do. *held* is all that the program knows of its hold."""

    held = False

    @abstractmethod
    def try_acquire(self, name: str, lease: float) -> bool:
        """Try to acquire the lock once."""

    def acquire(self, name: str, lease: float, *, renew: bool, timeout: float) -> Grant | None:
        """See `LockProgram`. A recipe that does not mention renewal does not renew."""
        if not poll_until(lambda: self.try_acquire(name, lease), timeout, POLL_INTERVAL):
            return None
        self.held = True
        return Grant()

    def valid_until(self) -> float:
        """See `LockProgram`."""
        return FOREVER if self.held else 0.0
