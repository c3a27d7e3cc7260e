"""A lease whose owner ended stays with that owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.turns import Anchor

if TYPE_CHECKING:
    import pytest

FIRST = 200


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Anchor.begin

    def begin(self: Anchor, first: int, now: float, asked: float, until: float) -> bool:
        news = real(self, first, now, asked, until)
        self.until += 1000.0
        return news

    patch.setattr(Anchor, "begin", begin)
