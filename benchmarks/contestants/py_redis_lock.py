"""python-redis-lock: waits with BLPOP for the signal of a release."""

from __future__ import annotations

from importlib.metadata import version
from typing import ClassVar

import redis_lock

from benchmarks.contestants.peer import Peer


class PyRedisLock(Peer):
    """A lease of 30 s, renewed by a thread that each acquire starts."""

    version: ClassVar[str] = version("python-redis-lock")

    def use_lock(self, name: str) -> None:
        """Create the lock as the documentation of the library shows it."""
        self.lock = redis_lock.Lock(self.client, name, expire=30, auto_renewal=True)
