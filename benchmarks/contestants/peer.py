"""What most peers have in common: a client of redis-py, and a lock with acquire and release."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import redis


class Peer:
    """One client and its lock, which each peer makes in `choose`."""

    version: ClassVar[str]
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.url = Path(folder, "url").read_text()
        self.client = redis.Redis.from_url(self.url)
        self.lock: Any = None
        self.choose("bench")

    def choose(self, name: str) -> None:
        """Use another lock of the client."""
        raise NotImplementedError

    def acquire(self) -> None:
        """Take it."""
        assert self.lock.acquire()

    def release(self) -> None:
        """Give it back."""
        self.lock.release()

    def close(self) -> None:
        """Close the client."""
        self.client.close()
