"""Neither death nor time ends a hold (hazard A1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Held


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def over(shelf: rules.Shelf, held: Held) -> bool:
        return False

    patch.setattr(rules, "over", over)
