"""Planted bugs of the `lease` protocol on SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.plant import planted
from verification.simulation.sql_lease_server import LeaseServer

from leaselock._backends.sql.lock_row import SqlLockRow

if TYPE_CHECKING:
    import pytest
    from verification.simulation.sql_lease_server import LeaseSession

    from leaselock._core.contract.backend import HoldRecord

# Many clients die, so that at the end some were the last to hold.
DEADLY = {"scenario.Scenario.crash_chance": 0.6}
# Seconds, far beyond the end of a scenario.
NEVER = 1e6


@planted("sql")
def cancelled_waiter_stays_queued(patch: pytest.MonkeyPatch) -> None:
    """The row of a cancelled waiter is not removed, so it is handed the lock."""
    release = SqlLockRow.quit

    def careless(self: SqlLockRow, holder: str) -> bool:
        was_there = release(self, holder)
        if was_there:
            del self.queue_before[holder]
        return was_there

    patch.setattr(SqlLockRow, "quit", careless)


@planted("sql")
def token_not_incremented(patch: pytest.MonkeyPatch) -> None:
    """A hand-off does not increment the token."""
    patch.setattr(SqlLockRow, "draw", lambda self: self.entry.token)


@planted("sql", faults={"slow": 0.02, "freeze": 0.05, "freeze_mean": 1.0})
def tombstone_ignored(patch: pytest.MonkeyPatch) -> None:
    """A request that arrives after its client gave up is granted (hazard D2)."""
    # A client that gives up closes its connection, so of a late request only the first script
    # arrives. The fast path in it is refused because a tombstone is counted as pending.
    patch.setattr(SqlLockRow, "has_tombstone", lambda self, claim_id: False)
    patch.setattr(SqlLockRow, "tombstone", lambda self, claim_id: None)


@planted("sql")
def wrong_clock(patch: pytest.MonkeyPatch) -> None:
    """Leases are compared with another clock than the one that wrote them (hazard B9)."""
    make = SqlLockRow.__init__

    def careless(self: SqlLockRow, *arguments: Any) -> None:
        make(self, *arguments)
        self.now += 0.7

    patch.setattr(SqlLockRow, "__init__", careless)


@planted("sql", settings=DEADLY)
def lease_without_end(patch: pytest.MonkeyPatch) -> None:
    """The row of a hold has an end that never comes (hazard A1)."""
    put = SqlLockRow.put

    def careless(self: SqlLockRow, hold: HoldRecord) -> None:
        put(self, hold._replace(expires=hold.expires + NEVER))

    patch.setattr(SqlLockRow, "put", careless)


@planted("sql")
def transaction_left_open(patch: pytest.MonkeyPatch) -> None:
    """Some sessions do not end their transactions any more after 20 s."""
    end = LeaseServer._end_transaction

    def careless(self: LeaseServer, session: LeaseSession) -> None:
        if session.number % 5 or self.now() < 20.0:
            end(self, session)

    patch.setattr(LeaseServer, "_end_transaction", careless)
