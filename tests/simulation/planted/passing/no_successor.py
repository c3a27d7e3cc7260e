"""When the local waiter that asks the store gives up, no other one continues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.turns import Line, Member

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def quit_line(self: Line, member: Member) -> None:
        self.members.pop(member.claim.id, None)
        member.leads = False

    patch.setattr(Line, "quit", quit_line)
