"""A forked child considers itself the holder of its parent's locks (hazard F6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.hold_registry import HoldRegistry

if TYPE_CHECKING:
    import pytest

STORY = "sqlite"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def abandon(self: HoldRegistry, reason: str, ours: bool) -> None:
        self.begin()
        self.backend.reset_identity()

    patch.setattr(HoldRegistry, "abandon", abandon)
