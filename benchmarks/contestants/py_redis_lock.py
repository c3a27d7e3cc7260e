"""python-redis-lock: it waits by BLPOP for a signal that the release leaves."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import redis
import redis_lock  # type: ignore[import-untyped]


class PyRedisLock:
    """A lease of 30 s, renewed by a thread that each acquire starts, as holdfast's is renewed."""

    version: ClassVar[str] = version("python-redis-lock")
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.client = redis.Redis.from_url(Path(folder, "url").read_text())
        self.lock = redis_lock.Lock(self.client, "bench", expire=30, auto_renewal=True)

    def acquire(self) -> None:
        """Take it."""
        assert self.lock.acquire()

    def release(self) -> None:
        """Give it back."""
        self.lock.release()

    def close(self) -> None:
        """Close the client."""
        self.client.close()
