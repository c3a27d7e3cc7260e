"""A hold that is not exclusive is not counted, so the fast path grants a writer beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.lock_row import SqlLockRow

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = SqlLockRow.put

    def put(self: SqlLockRow, hold: HoldRecord) -> None:
        counted = self.pending
        real(self, hold)
        self.pending = counted

    patch.setattr(SqlLockRow, "put", put)
