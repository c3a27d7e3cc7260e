"""leaselock in asyncio, as a user writes it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

import leaselock
from benchmarks.contestants.looped import Lock, Looped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Ours(Looped):
    """A lease of 30 s that is renewed, reentrant, fair, with a token: the default."""

    version: ClassVar[str] = leaselock.__version__

    @staticmethod
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Callable[[str], Lock]]:
        """One client."""
        async with leaselock.AsyncClient(url) as client:
            yield client.lock
