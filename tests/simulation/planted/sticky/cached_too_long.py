"""A cached lease is reused when it may have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.turns import Anchor

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Anchor.begin

    def begin(self: Anchor, first: int, now: float, asked: float, until: float) -> bool:
        news = real(self, first, now, asked, until)
        self.until += 30.0
        self.turn += 30.0
        return news

    patch.setattr(Anchor, "begin", begin)
