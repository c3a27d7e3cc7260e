"""Planted bugs of read/write locks of the `lease` protocol on SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.plant import planted
from verification.simulation.planted import sql
from verification.simulation.planted.sql import DEADLY

from leaselock._backends.sql.lock_row import SqlLockRow
from leaselock._core.contract.marks import with_marks

if TYPE_CHECKING:
    import pytest

    from leaselock._core.contract.backend import HoldRecord


@planted("numbered sql")
def number_not_stored(patch: pytest.MonkeyPatch) -> None:
    """The number of a permit is told to its client, and not stored."""
    real = SqlLockRow.put

    def put(self: SqlLockRow, hold: HoldRecord) -> None:
        real(self, hold._replace(metadata=with_marks(hold.metadata, ())))

    patch.setattr(SqlLockRow, "put", put)


@planted("sql modes")
def release_removes_all_holds(patch: pytest.MonkeyPatch) -> None:
    """The release of one reader removes the rows of all."""
    real = SqlLockRow.remove

    def remove(self: SqlLockRow, hold_id: str) -> None:
        for hold in self.holds():
            real(self, hold.id)

    patch.setattr(SqlLockRow, "remove", remove)


@planted("sql modes")
def shared_hold_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A hold that is not exclusive is not counted, so the fast path grants a writer beside it."""
    real = SqlLockRow.put

    def put(self: SqlLockRow, hold: HoldRecord) -> None:
        real(self, hold)
        self.pending -= hold.mode != "exclusive" and hold.id not in self.shared_before

    patch.setattr(SqlLockRow, "put", put)


@planted("sql modes")
def release_removes_no_row(patch: pytest.MonkeyPatch) -> None:
    """The release of a hold leaves its row."""
    real = SqlLockRow.remove

    def remove(self: SqlLockRow, hold_id: str) -> None:
        real(self, hold_id)
        self.shared_before.pop(hold_id, None)

    patch.setattr(SqlLockRow, "remove", remove)


@planted("sql modes", settings=DEADLY)
def lease_without_end(patch: pytest.MonkeyPatch) -> None:
    """The rows of holds have ends that never come (hazard A1)."""
    sql.lease_without_end(patch)
