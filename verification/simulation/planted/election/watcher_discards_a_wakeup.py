"""A wake-up that arrives while a watcher looks is discarded."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from leaselock._core.backend import Watch
from leaselock._core.effects import Sleep
from leaselock._core.queue import Queue

if TYPE_CHECKING:
    import pytest

    from leaselock._core.effects import Request

R = TypeVar("R")


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Queue.request

    async def request(self: Queue, request: Request[R], until: float) -> R:
        reply = await real(self, request, until)
        if isinstance(request, Watch):
            await Sleep(0.0)
            self.signals[request.claim.id].clear()
        return reply

    patch.setattr(Queue, "request", request)
