"""The store does not know that a grant has several tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.table import Place

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Claim, Held


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Place.grant

    def grant(self: Place, claim: Claim, expires: float) -> Held:
        held = real(self, claim, expires)
        self.entry.token = held.token
        return held

    patch.setattr(Place, "grant", grant)
