"""A hand-off repeats the token of the previous owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.turns import Anchor, Line, Member

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Line.give

    def give(self: Line, anchor: Anchor, member: Member) -> None:
        real(self, anchor, member)
        anchor.token = anchor.first

    patch.setattr(Line, "give", give)
