"""A lock is handed off without waking the waiter (hazard E1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.memory.store import MemoryRow

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def wake(self: MemoryRow, claim: Claim) -> None:
        return None

    patch.setattr(MemoryRow, "notify", wake)
