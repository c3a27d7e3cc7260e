"""A wake-up that arrives while a watcher looks is discarded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.effects import Sleep
from leaselock._core.queue import Queue

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim, Watched


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Queue.watch_lock

    async def watch_lock(self: Queue, claim: Claim, until: float) -> Watched:
        reply = await real(self, claim, until)
        await Sleep(0.0)
        self.signals[claim.id].clear()
        return reply

    patch.setattr(Queue, "watch_lock", watch_lock)
