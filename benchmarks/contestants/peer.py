"""Base of most peers on Redis: a client of redis-py, and a lock with acquire and release."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import redis


class Peer:
    """One client and its lock, which subclasses create in `use_lock`."""

    version: ClassVar[str]
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.url = Path(folder, "url").read_text()
        self.client = redis.Redis.from_url(self.url)
        self.lock: Any = None
        self.use_lock("bench")

    def use_lock(self, name: str) -> None:
        """Use another lock of the client."""
        raise NotImplementedError

    def acquire(self) -> None:
        """Acquire the lock."""
        assert self.lock.acquire()

    def release(self) -> None:
        """Release the lock."""
        self.lock.release()

    def close(self) -> None:
        """Close the client."""
        self.client.close()
