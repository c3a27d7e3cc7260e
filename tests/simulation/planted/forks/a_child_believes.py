"""A forked child goes on believing in what its parent holds (hazard F6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.holdings import Holdings

if TYPE_CHECKING:
    import pytest

STORY = "sqlite"
FIRST = 20000


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def abandon(self: Holdings, reason: str, ours: bool) -> None:
        self.begin()
        self.backend.renewed_identity()

    patch.setattr(Holdings, "abandon", abandon)
