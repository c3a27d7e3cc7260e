"""A renewal is believed from the moment its answer arrived (hazard B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.keeper import Keeper

if TYPE_CHECKING:
    import pytest

    from leaselock.core.lease import Hold


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Keeper._renewed

    def renewed(self: Keeper, hold: Hold, asked: float, lease: float) -> None:
        real(self, hold, self.books.env.now(), lease)

    patch.setattr(Keeper, "_renewed", renewed)
