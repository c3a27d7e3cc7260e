"""coredis's lock: polls, by default every 0.1 s."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

import coredis

from benchmarks.contestants.aio_redis_py import CONNECTIONS
from benchmarks.contestants.asyncio_contestant import AsyncioContestant, Lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Coredis(AsyncioContestant):
    """A lease of 30 s without renewal; waiters have no order; no token."""

    version: ClassVar[str] = version("coredis")

    @staticmethod
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Callable[[str], Lock]]:
        """Open one client."""
        client = coredis.Redis.from_url(url, max_connections=CONNECTIONS)
        async with client:
            yield lambda name: client.lock(f"coredis {name}", timeout=30)
