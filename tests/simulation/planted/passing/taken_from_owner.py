"""A lease in use by one owner is given to another owner of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.turns import Line, Member

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Line.take

    def take(self: Line, member: Member, now: float) -> bool:
        if self.anchor is not None:
            self.anchor.owner = None
        return real(self, member, now)

    patch.setattr(Line, "take", take)
