"""The number of hand-offs is not limited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.local_handoff import SharedLease

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def fits(self: SharedLease, lease: float, now: float) -> bool:
        return now < self.handoff_until and lease == self.claim.lease

    patch.setattr(SharedLease, "fits", fits)
