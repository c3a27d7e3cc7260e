"""The validity of a grant in a message is counted from its receipt (hazard B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.redis.places import Places

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Grant


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Places.told

    def told(self: Places, holder: str) -> Grant | None:
        if holder in self.news:
            self.asked[holder] = self.now()
        return real(self, holder)

    patch.setattr(Places, "told", told)
