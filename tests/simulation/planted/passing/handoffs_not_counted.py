"""The number of hand-offs is not limited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.turns import Anchor

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def fits(self: Anchor, lease: float, now: float) -> bool:
        return now < self.turn and lease == self.claim.lease

    patch.setattr(Anchor, "fits", fits)
