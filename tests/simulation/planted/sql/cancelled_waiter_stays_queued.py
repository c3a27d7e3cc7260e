"""The row of a cancelled waiter is not removed, so it is handed the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.sql.shelf import LockShelf

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    release = LockShelf.quit

    def careless(self: LockShelf, holder: str) -> bool:
        was_there = release(self, holder)
        if was_there:
            self.writes.pop()
        return was_there

    patch.setattr(LockShelf, "quit", careless)
