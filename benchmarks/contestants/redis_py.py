"""redis-py's lock: polls, by default every 0.1 s."""

from __future__ import annotations

from typing import ClassVar

import redis

from benchmarks.contestants.peer import Peer


class RedisPy(Peer):
    """A lease of 30 s without renewal; waiters have no order; no token."""

    version: ClassVar[str] = redis.__version__

    def use_lock(self, name: str) -> None:
        """Create the lock as the documentation of the library shows it."""
        self.lock = self.client.lock(f"redis-py {name}", timeout=30)
