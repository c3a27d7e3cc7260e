"""One vote fewer than a majority is enough (hazard H3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redlock.votes import Votes

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(Votes, "quorum", property(lambda votes: votes.masters // 2))
