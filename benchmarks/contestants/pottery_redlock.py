"""pottery's Redlock, of one server or of several: it polls, every 0.1 s on average."""

from __future__ import annotations

from importlib.metadata import version
from typing import ClassVar

import redis
from pottery import Redlock

from benchmarks.contestants.peer import Peer


class Pottery(Peer):
    """A lease of 30 s that its user may extend; no order among those who wait, and no token."""

    version: ClassVar[str] = version("pottery")

    def choose(self, name: str) -> None:
        """As its documentation shows it."""
        masters = {redis.Redis.from_url(url) for url in self.url.split(",")}
        self.lock = Redlock(key=name, masters=masters, auto_release_time=30)
