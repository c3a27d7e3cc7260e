"""A waiter relies on messages alone (hazard E2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis import scripted_lock

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(scripted_lock, "_recheck", lambda left, rank: 1e9)
