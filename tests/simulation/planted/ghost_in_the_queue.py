"""A waiter that gives up stays in the queue (hazard E6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import rules
from leaselock.core.backend import Leave, Left

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.leave

    def leave(shelf: rules.Shelf, request: Leave) -> Left:
        held = shelf.held()
        if held is None or held.holder != request.claim.holder:
            return Left("waiting", ())
        return real(shelf, request)

    patch.setattr(rules, "leave", leave)
