"""A hand-off does not increment the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.sql.lock_row import SqlLockRow

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Claim, HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    grant = SqlLockRow.grant

    def careless(self: SqlLockRow, claim: Claim, expires: float) -> HoldRecord:
        before = self.token
        held = grant(self, claim, expires)._replace(token=before)
        self.token = before
        self.save(held)
        return held

    patch.setattr(SqlLockRow, "grant", careless)
