"""A lease whose owner ended stays with that owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.local_handoff import SharedLease

if TYPE_CHECKING:
    import pytest

FAULTS = {"freeze": 0.05, "freeze_mean": 4.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = SharedLease.grant

    def grant(
        self: SharedLease, first_token: int, now: float, asked: float, valid_until: float
    ) -> bool:
        new = real(self, first_token, now, asked, valid_until)
        self.valid_until += 1000.0
        return new

    patch.setattr(SharedLease, "grant", grant)
