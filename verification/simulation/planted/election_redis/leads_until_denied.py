"""A leader that the store does not answer leads on until it hears that it was replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.hold import Hold, State

if TYPE_CHECKING:
    import pytest

# Only partitions, restarts and broken connections.
FAULTS = {"freeze": 0.0, "slow": 0.0, "lost_request": 0.0, "lost_reply": 0.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(Hold, "is_valid", lambda self, now: self.state is State.HELD)
