"""Leases are compared with another clock than the one that wrote them (hazard B9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends.sql.lock_row import SqlLockRow

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    make = SqlLockRow.__init__

    def careless(self: SqlLockRow, *arguments: Any) -> None:
        make(self, *arguments)
        self.now += 0.7

    patch.setattr(SqlLockRow, "__init__", careless)
