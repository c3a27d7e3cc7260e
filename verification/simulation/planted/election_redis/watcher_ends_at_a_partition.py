"""A watcher raises the error of a store that does not answer for a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import watching

if TYPE_CHECKING:
    import pytest

# Only partitions, restarts and broken connections.
FAULTS = {"freeze": 0.0, "slow": 0.0, "lost_request": 0.0, "lost_reply": 0.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(watching, "TOLERATED_SILENCE", 1.0)
