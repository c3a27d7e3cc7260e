"""Hand-offs have no limit in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.turns import Anchor

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def fits(self: Anchor, lease: float, now: float) -> bool:
        return self.token < self.last and lease == self.claim.lease

    patch.setattr(Anchor, "fits", fits)
