"""redlock-py on one or several servers: three tries, 0.2 s apart; here repeated without limit."""

from __future__ import annotations

from importlib.metadata import version
from typing import ClassVar

import redis
from redlock import Redlock

from benchmarks.contestants.peer import Peer


class RedlockPy(Peer):
    """A lease of 30 s without renewal; waiters have no order; no token."""

    version: ClassVar[str] = version("redlock-py")

    def use_lock(self, name: str) -> None:
        """Create the lock as the documentation of the library shows it."""
        self.manager = Redlock([redis.Redis.from_url(url) for url in self.url.split(",")])
        self.name = f"redlock-py {name}"

    def acquire(self) -> None:
        """Acquire the lock, with as many tries as necessary."""
        while not (lock := self.manager.lock(self.name, 30_000)):
            pass
        self.lock = lock

    def release(self) -> None:
        """Release the lock."""
        self.manager.unlock(self.lock)
