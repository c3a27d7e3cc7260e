"""A forked child releases its parent's locks (hazard F7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.hold_registry import HoldRegistry

if TYPE_CHECKING:
    import pytest

STORY = "redis"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    abandon = HoldRegistry.abandon
    patch.setattr(HoldRegistry, "abandon", lambda self, reason, ours: abandon(self, reason, True))
