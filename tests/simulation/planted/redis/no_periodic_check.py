"""A waiter relies on messages alone (hazard E2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.redis import hash as conversations

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(conversations, "_recheck", lambda left, rank: 1e9)
