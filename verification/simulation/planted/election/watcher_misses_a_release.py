"""Watchers are notified when a hold begins, but not when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.memory.store import MemoryRow

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = MemoryRow.remove

    def remove(self: MemoryRow, hold_id: str) -> None:
        watchers, self.entry.watchers = self.entry.watchers, {}
        real(self, hold_id)
        self.entry.watchers = watchers

    patch.setattr(MemoryRow, "remove", remove)
