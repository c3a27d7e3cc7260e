"""redis-py's own lock: it polls, by default every 0.1 s."""

from __future__ import annotations

from typing import ClassVar

import redis

from benchmarks.contestants.peer import Peer


class RedisPy(Peer):
    """A lease of 30 s that nobody renews; no order among those who wait, and no token."""

    version: ClassVar[str] = redis.__version__

    def choose(self, name: str) -> None:
        """As its documentation shows it."""
        self.lock = self.client.lock(f"redis-py {name}", timeout=30)
