"""A release frees the lock whoever holds it (hazard A2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Leave, Left


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.leave

    def leave(shelf: rules.Shelf, request: Leave) -> Left:
        held = shelf.held()
        if held is not None and not shelf.quit(request.claim.holder):
            shelf.keep(held._replace(holder=request.claim.holder))
        return real(shelf, request)

    patch.setattr(rules, "leave", leave)
