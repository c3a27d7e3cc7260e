"""pottery's Redlock of asyncio: it polls, every 0.1 s on average."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

from pottery import AIORedlock

from benchmarks.contestants.aio_redis_py import client_of
from benchmarks.contestants.looped import Lock, Looped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Pottery(Looped):
    """A lease of 30 s that its user may extend; no order among those who wait, and no token."""

    version: ClassVar[str] = version("pottery")

    @staticmethod
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Callable[[str], Lock]]:
        """One client."""
        async with client_of(url) as client:
            yield lambda name: AIORedlock(key=name, masters={client}, auto_release_time=30)
