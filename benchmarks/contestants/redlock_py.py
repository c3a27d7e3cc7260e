"""redlock-py, of one server or of several: it tries three times, 0.2 s apart; here, for ever."""

from __future__ import annotations

from importlib.metadata import version
from typing import ClassVar

import redis
from redlock import Redlock

from benchmarks.contestants.peer import Peer


class RedlockPy(Peer):
    """A lease of 30 s that nobody renews; no order among those who wait, and no token."""

    version: ClassVar[str] = version("redlock-py")

    def choose(self, name: str) -> None:
        """As its documentation shows it."""
        self.manager = Redlock([redis.Redis.from_url(url) for url in self.url.split(",")])
        self.name = f"redlock-py {name}"

    def acquire(self) -> None:
        """Take it, with as many tries as it needs."""
        while not (lock := self.manager.lock(self.name, 30_000)):
            pass
        self.lock = lock

    def release(self) -> None:
        """Give it back."""
        self.manager.unlock(self.lock)
