"""pottery's asyncio Redlock: polls, every 0.1 s on average."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

from pottery import AIORedlock

from benchmarks.contestants.aio_redis_py import client_of
from benchmarks.contestants.asyncio_contestant import AsyncioContestant, Lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Pottery(AsyncioContestant):
    """A lease of 30 s that its user may extend; waiters have no order; no token."""

    version: ClassVar[str] = version("pottery")

    @staticmethod
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Callable[[str], Lock]]:
        """Open one client."""
        async with client_of(url) as client:
            yield lambda name: AIORedlock(key=name, masters={client}, auto_release_time=30)
