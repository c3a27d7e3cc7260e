"""After a fork the child hands off the lease of its parent (hazard F6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.local import Local

if TYPE_CHECKING:
    import pytest

FIRST = 20000


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def reset_identity(self: Local) -> None:
        for member in self.members.values():
            if member.anchor is not None:
                member.anchor.owner = None
        self.backend.reset_identity()

    patch.setattr(Local, "reset_identity", reset_identity)
