"""A cancelled claim can still be granted by a late request (hazard D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.memory.store import MemoryRow

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def tombstone(self: MemoryRow, holder: str) -> None:
        return None

    patch.setattr(MemoryRow, "tombstone", tombstone)
