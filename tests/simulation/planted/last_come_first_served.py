"""The last waiter is served first (hazard E5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.memory.store import MemoryRow

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def first(self: MemoryRow) -> Claim | None:
        return next(reversed(self.entry.queue.values()), None)

    patch.setattr(MemoryRow, "first", first)
