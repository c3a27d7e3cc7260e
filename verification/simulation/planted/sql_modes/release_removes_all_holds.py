"""The release of one reader removes the rows of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.lock_row import SqlLockRow

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = SqlLockRow.remove

    def remove(self: SqlLockRow, hold_id: str) -> None:
        for hold in self.holds():
            real(self, hold.id)

    patch.setattr(SqlLockRow, "remove", remove)
