"""redis-py's asyncio lock: polls, by default every 0.1 s."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

import redis
import redis.asyncio

from benchmarks.contestants.asyncio_contestant import AsyncioContestant, Lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# Tasks wait for a free connection; one for each of a thousand tasks would be slower.
CONNECTIONS = 50


def client_of(url: str) -> redis.asyncio.Redis:
    """Return a client for many tasks."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url, max_connections=CONNECTIONS, timeout=None
    )
    return redis.asyncio.Redis.from_pool(pool)


class RedisPy(AsyncioContestant):
    """A lease of 30 s without renewal; waiters have no order; no token."""

    version: ClassVar[str] = redis.__version__

    @staticmethod
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Callable[[str], Lock]]:
        """Open one client."""
        async with client_of(url) as client:
            yield lambda name: client.lock(f"redis-py {name}", timeout=30)
