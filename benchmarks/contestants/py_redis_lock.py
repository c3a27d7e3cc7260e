"""python-redis-lock: it waits by BLPOP for a signal that the release leaves."""

from __future__ import annotations

from importlib.metadata import version
from typing import ClassVar

import redis_lock

from benchmarks.contestants.peer import Peer


class PyRedisLock(Peer):
    """A lease of 30 s, renewed by a thread that each acquire starts, as leaselock's is renewed."""

    version: ClassVar[str] = version("python-redis-lock")

    def choose(self, name: str) -> None:
        """As its documentation shows it."""
        self.lock = redis_lock.Lock(self.client, name, expire=30, auto_renewal=True)
