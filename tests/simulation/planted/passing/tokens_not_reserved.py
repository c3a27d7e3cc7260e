"""The store does not reserve the tokens of a grant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.memory.store import MemoryRow

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Claim, HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = MemoryRow.grant

    def grant(self: MemoryRow, claim: Claim, expires: float) -> HoldRecord:
        held = real(self, claim, expires)
        self.entry.token = held.token
        return held

    patch.setattr(MemoryRow, "grant", grant)
