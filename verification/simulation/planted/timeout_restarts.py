"""A wake-up may extend the wait beyond its timeout, as in kazoo 2.11 (hazard B13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.queue import Queue

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Queue.await_wakeup

    async def await_wakeup(self: Queue, claim: Claim, until: float) -> None:
        await real(self, claim, until + 0.5)

    patch.setattr(Queue, "await_wakeup", await_wakeup)
