"""The last waiter is served first (hazard E5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.memory.store import MemoryRow

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def queue(self: MemoryRow) -> list[Claim]:
        return [*reversed(self.entry.queue.values())]

    patch.setattr(MemoryRow, "queue", queue)
