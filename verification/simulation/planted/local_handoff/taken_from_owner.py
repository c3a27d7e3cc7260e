"""A lease in use by one owner is given to another owner of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.local_handoff import LocalQueue, LocalWaiter

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = LocalQueue.take

    def take(self: LocalQueue, waiter: LocalWaiter, now: float) -> bool:
        if self.lease is not None:
            self.lease.holder = None
        return real(self, waiter, now)

    patch.setattr(LocalQueue, "take", take)
