"""The validity of a grant in a message is counted from its receipt (hazard B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.queue_state import QueueState

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Grant

FAULTS = {"freeze": 0.05, "freeze_mean": 4.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = QueueState.grant

    def grant(self: QueueState, holder: str) -> Grant | None:
        if holder in self.grants:
            self.asked[holder] = self.now()
        return real(self, holder)

    patch.setattr(QueueState, "grant", grant)
