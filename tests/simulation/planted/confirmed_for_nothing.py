"""A hand-over is confirmed without the lease that goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import rules
from leaselock.core.backend import Ask, Busy, Grant

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.ask

    def ask(shelf: rules.Shelf, request: Ask) -> Grant | Busy:
        held = shelf.held()
        if held is not None and held.holder == request.claim.holder:
            return Grant(held.token, shelf.woken())
        return real(shelf, request)

    patch.setattr(rules, "ask", ask)
