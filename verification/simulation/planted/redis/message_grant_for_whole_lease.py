"""A grant received in a message is considered valid for the whole lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.queue_state import QueueState
from leaselock._core.effects import FOREVER

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Grant


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = QueueState.grant

    def grant(self: QueueState, holder: str) -> Grant | None:
        found = real(self, holder)
        return None if found is None else found._replace(lasts=FOREVER)

    patch.setattr(QueueState, "grant", grant)
