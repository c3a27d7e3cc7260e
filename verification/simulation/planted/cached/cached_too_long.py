"""A cached lease is reused when it may have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.local_handoff import SharedLease

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = SharedLease.grant

    def grant(
        self: SharedLease, first_token: int, now: float, asked: float, valid_until: float
    ) -> bool:
        new = real(self, first_token, now, asked, valid_until)
        self.valid_until += 30.0
        self.handoff_until += 30.0
        return new

    patch.setattr(SharedLease, "grant", grant)
