"""A hand-off restarts the validity for the whole lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import local
from leaselock.core.backend import Grant

if TYPE_CHECKING:
    import pytest

    from leaselock.core.turns import Anchor, Member


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def granted(member: Member, anchor: Anchor, now: float) -> Grant:
        return Grant(member.token, ())

    patch.setattr(local, "granted", granted)
