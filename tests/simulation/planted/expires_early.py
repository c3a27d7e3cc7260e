"""The store ends a lease when half of it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Held


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.over

    def over(shelf: rules.Shelf, held: Held) -> bool:
        lease = 1.0
        return real(shelf, held) or held.expires - lease / 2 <= shelf.now

    patch.setattr(rules, "over", over)
