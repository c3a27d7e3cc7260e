"""A forked child uses its parent's renewer, which does not exist there, and renews nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.hold_registry import HoldRegistry

if TYPE_CHECKING:
    import pytest

STORY = "sqlite"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    abandon = HoldRegistry.abandon

    def forget(self: HoldRegistry, reason: str, ours: bool) -> None:
        keeping = self.renewing
        abandon(self, reason, ours)
        self.renewing = keeping

    patch.setattr(HoldRegistry, "abandon", forget)
