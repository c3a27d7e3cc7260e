"""A hand-off repeats the token of the previous owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.local_handoff import LocalQueue, LocalWaiter, SharedLease

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = LocalQueue.give

    def give(self: LocalQueue, lease: SharedLease, waiter: LocalWaiter) -> None:
        real(self, lease, waiter)
        lease.token = lease.first_token

    patch.setattr(LocalQueue, "give", give)
