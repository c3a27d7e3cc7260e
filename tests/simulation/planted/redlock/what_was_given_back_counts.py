"""A vote whose undoing is under way is counted again (hazard D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.backends.redlock.protocol import Redlock

if TYPE_CHECKING:
    import pytest

# Not long before the first seed that finds it, which takes its time.
FIRST = 1760


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(Redlock, "_votes", lambda self, ballot, claim: ballot.votes())
