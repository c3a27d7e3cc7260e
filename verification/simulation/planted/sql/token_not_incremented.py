"""A hand-off does not increment the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.lock_row import SqlLockRow

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(SqlLockRow, "draw", lambda self, count: self.token)
