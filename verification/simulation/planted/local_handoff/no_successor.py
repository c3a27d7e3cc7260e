"""When the local waiter that asks the store gives up, no other one continues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.local_handoff import LocalQueue, LocalWaiter

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def remove(self: LocalQueue, waiter: LocalWaiter) -> None:
        self.waiters.pop(waiter.claim.id, None)
        waiter.asks_store = False

    patch.setattr(LocalQueue, "remove", remove)
