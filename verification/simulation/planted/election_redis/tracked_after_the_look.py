"""A watcher has the key tracked after it has looked, and misses a change between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.backend import RedisBackend
from leaselock._core.backend import Watched

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = RedisBackend.watch_lock

    async def watch_lock(self: RedisBackend, claim: Claim, until: float) -> Watched:
        (state,) = await self.inspect(claim.name, "*", until)
        return Watched(state, (await real(self, claim, until)).retry_after)

    patch.setattr(RedisBackend, "watch_lock", watch_lock)
