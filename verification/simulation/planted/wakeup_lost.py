"""A wake-up that arrives while a request is in flight is discarded (hazard E1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.effects import Sleep
from leaselock._core.queue import Queue

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Busy, Claim, Grant


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Queue.acquire

    async def acquire(self: Queue, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        reply = await real(self, claim, wait=wait, until=until)
        if wait:
            await Sleep(0.0)
            self.signals[claim.id].clear()
        return reply

    patch.setattr(Queue, "acquire", acquire)
