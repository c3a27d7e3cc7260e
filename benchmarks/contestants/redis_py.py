"""redis-py's own lock: it polls, by default every 0.1 s."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import redis


class RedisPy:
    """A lease of 30 s that nobody renews; no order among those who wait, and no token."""

    version: ClassVar[str] = redis.__version__
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.client = redis.Redis.from_url(Path(folder, "url").read_text())
        self.lock = self.client.lock("redis-py", timeout=30)

    def acquire(self) -> None:
        """Take it."""
        assert self.lock.acquire()

    def release(self) -> None:
        """Give it back."""
        self.lock.release()

    def close(self) -> None:
        """Close the client."""
        self.client.close()
