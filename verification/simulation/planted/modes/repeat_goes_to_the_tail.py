"""A waiter that asks again goes to the tail of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.memory.store import MemoryRow

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = MemoryRow.join

    def join(self: MemoryRow, claim: Claim) -> None:
        self.entry.queue.pop(claim.id, None)
        real(self, claim)

    patch.setattr(MemoryRow, "join", join)
