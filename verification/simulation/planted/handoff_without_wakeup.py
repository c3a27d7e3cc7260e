"""A lock is handed off without waking the waiter (hazard E1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.memory.store import MemoryRow

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    patch.setattr(MemoryRow, "notify", lambda self, claim_id, client: None)
