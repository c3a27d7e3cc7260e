"""The row of a cancelled waiter is not removed, so it is handed the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.lock_row import SqlLockRow

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    release = SqlLockRow.quit

    def careless(self: SqlLockRow, holder: str) -> bool:
        was_there = release(self, holder)
        if was_there:
            self.writes.pop()
        return was_there

    patch.setattr(SqlLockRow, "quit", careless)
