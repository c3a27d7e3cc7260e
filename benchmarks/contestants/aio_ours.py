"""leaselock with asyncio, with its defaults."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

import leaselock
from benchmarks.contestants.asyncio_contestant import AsyncioContestant, Lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Ours(AsyncioContestant):
    """A lease of 30 s with renewal, reentrant, first come first served, with a token."""

    version: ClassVar[str] = leaselock.__version__

    @staticmethod
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Callable[[str], Lock]]:
        """Open one client."""
        async with leaselock.AsyncClient(url) as client:
            yield client.lock
