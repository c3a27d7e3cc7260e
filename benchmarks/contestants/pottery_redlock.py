"""pottery's Redlock on one or several servers: polls, every 0.1 s on average."""

from __future__ import annotations

from importlib.metadata import version
from typing import ClassVar

import redis
from pottery import Redlock

from benchmarks.contestants.peer import Peer


class Pottery(Peer):
    """A lease of 30 s that its user may extend; waiters have no order; no token."""

    version: ClassVar[str] = version("pottery")

    def use_lock(self, name: str) -> None:
        """Create the lock as the documentation of the library shows it."""
        masters = {redis.Redis.from_url(url) for url in self.url.split(",")}
        self.lock = Redlock(key=name, masters=masters, auto_release_time=30)
