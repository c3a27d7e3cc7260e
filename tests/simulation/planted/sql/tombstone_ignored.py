"""A request that arrives after its client gave up is granted (hazard D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.sql.shelf import LockShelf

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(LockShelf, "has_tombstone", lambda self, holder: False)
