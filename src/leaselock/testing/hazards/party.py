"""What every way of locking can be asked to do, ours and the naive ones.

Law: a party is one program that uses a lock in one way, with connections of its own. It does what
such a program does, and no more: where the literature's recipe looks at nothing, neither does it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

from leaselock.testing.polling import poll_until as until

FOREVER = float("inf")
POLL = 0.05
# How long a program waits for one answer of its store.
ANSWER = 1.0


class NotMine(Exception):
    """What a recipe that looks says to whoever has nothing to release."""


class Grip(NamedTuple):
    """A lock that was taken; *token* is None where there is none."""

    token: int | None = None


class Party(Protocol):
    """One program. What it is told when it is refused, it raises."""

    def take(self, name: str, lease: float, *, renew: bool, patience: float) -> Grip | None:
        """Take the lock, waiting for it as this way does, *patience* seconds at most; 0 asks
        once. None when another has it.
        """
        ...

    def release(self, name: str) -> None:
        """What this program does to give it back, whether or not it has it."""
        ...

    def until(self) -> float:
        """Until when it believes that it holds, on the boot clock: FOREVER if it has no way of
        knowing better, 0 when it knows that it does not.
        """
        ...

    def close(self) -> None:
        """Leave the store in order."""
        ...


class Asking(ABC):
    """Waits as most recipes do: it asks again and again. *held* is all that it knows."""

    held = False

    @abstractmethod
    def ask(self, name: str, lease: float) -> bool:
        """Try to take it."""

    def take(self, name: str, lease: float, *, renew: bool, patience: float) -> Grip | None:
        """As `Party` says. A recipe that says nothing of renewal has none."""
        if not until(lambda: self.ask(name, lease), patience, POLL):
            return None
        self.held = True
        return Grip()

    def until(self) -> float:
        """As `Party` says."""
        return FOREVER if self.held else 0.0
