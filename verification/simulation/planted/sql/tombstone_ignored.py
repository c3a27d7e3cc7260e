"""A request that arrives after its client gave up is granted (hazard D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.lock_row import SqlLockRow

if TYPE_CHECKING:
    import pytest

FAULTS = {"slow": 0.02, "freeze": 0.05, "freeze_mean": 1.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    # A client that gives up closes its connection, so of a late request only the first script
    # arrives. The fast path in it is refused because a tombstone is counted as pending.
    patch.setattr(SqlLockRow, "has_tombstone", lambda self, claim_id: False)
    patch.setattr(SqlLockRow, "tombstone", lambda self, claim_id: None)
