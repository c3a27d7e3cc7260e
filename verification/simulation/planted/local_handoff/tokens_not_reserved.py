"""The store does not reserve the tokens of a grant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.memory.store import MemoryRow

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = MemoryRow.draw
    patch.setattr(MemoryRow, "draw", lambda self, count: real(self, 1))
