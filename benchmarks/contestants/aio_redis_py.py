"""redis-py's lock of asyncio: it polls, by default every 0.1 s."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

import redis
import redis.asyncio

from benchmarks.contestants.looped import Lock, Looped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# Tasks wait for one of these: with a connection for each of a thousand it would be slower.
CONNECTIONS = 50


def client_of(url: str) -> redis.asyncio.Redis:
    """A client for many tasks."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url, max_connections=CONNECTIONS, timeout=None
    )
    return redis.asyncio.Redis.from_pool(pool)


class RedisPy(Looped):
    """A lease of 30 s that nobody renews; no order among those who wait, and no token."""

    version: ClassVar[str] = redis.__version__

    @staticmethod
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Callable[[str], Lock]]:
        """One client."""
        async with client_of(url) as client:
            yield lambda name: client.lock(f"redis-py {name}", timeout=30)
