"""A forked child takes its parent's keeper for its own, and renews nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.holdings import Holdings

if TYPE_CHECKING:
    import pytest

STORY = "sqlite"
FIRST = 20000


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    abandon = Holdings.abandon

    def forget(self: Holdings, reason: str, ours: bool) -> None:
        keeping = self.keeping
        abandon(self, reason, ours)
        self.keeping = keeping

    patch.setattr(Holdings, "abandon", forget)
