"""The rows of the tables of protocol "lease" as holds and claims, and those as columns.

A row is what another version or another program may have written: what cannot be read is
`Unreadable`, with the statement that removes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._core.contract.backend import Claim, HoldRecord
from leaselock._core.contract.marks import free_from_of
from leaselock._core.rows.records import checked, is_count, is_time, readable_text, unreadable
from leaselock._core.rows.rules import FORGET_AFTER

if TYPE_CHECKING:
    from leaselock._backends.sql.statements import Value
    from leaselock._core.contract.backend import Lifetime, Mode
    from leaselock._core.rows.records import Record

LOCKS, HOLDS, QUEUE = "leaselock_lock", "leaselock_hold", "leaselock_waiter"
# The row of a waiter expires when the waiter is forgotten.
WAITER_LASTS = FORGET_AFTER


def micros(seconds: float) -> int:
    """Seconds as microseconds, the unit of the tables."""
    return round(seconds * 1e6)


def _seconds(micros: Any) -> Any:
    """A time of the tables in seconds. NULL stays None, which `checked` refuses."""
    return None if micros is None else micros / 1e6


class ExclusiveRow(NamedTuple):
    """An exclusive hold, as the statements "one" and "all" read it. It is in the row of its lock;
    the other holds are in a table of their own.
    """

    id: str
    client: str
    lifetime: Lifetime
    token: int
    expires: int
    metadata: str
    since: int
    free_from: int | None

    def record(self) -> HoldRecord:
        """The hold, unchecked."""
        times = _seconds(self.expires), self.metadata, _seconds(self.since)
        hold = HoldRecord(self.id, self.client, self.lifetime, self.token, *times)
        return hold._replace(free_from=_seconds(self.free_from or 0))


class LockColumns(NamedTuple):
    """The row of a lock, as the statement "lock" reads it."""

    token: int
    pending: int
    """How many waiters, tombstones, watchers and holds other tables have about the lock."""
    id: str | None
    client: str
    lifetime: Lifetime
    expires: int
    metadata: str
    since: int
    free_from: int | None
    step: int
    offered: int
    permits: int
    lapsed_offer: int

    def check(self, name: str) -> None:
        """Unreadable if what it has beside its hold cannot be used."""
        _check(name, "token", self.token, is_count(self.token))
        _check(name, "permits", self.permits, is_count(self.permits))
        _check(name, "lapsed_offer", self.lapsed_offer, is_time(_seconds(self.lapsed_offer)))

    def exclusive(self) -> HoldRecord | None:
        """The hold that it has, unchecked."""
        if self.id is None:
            return None
        first = self.id, self.client, self.lifetime, self.token
        hold = ExclusiveRow(*first, self.expires, self.metadata, self.since, self.free_from)
        return hold.record()._replace(step=self.step, offered=bool(self.offered))


class SharedRow(NamedTuple):
    """A hold that is not exclusive, as the statements "holds", "one holds" and "all holds" read it;
    the latter two with the number of permits that the lock has as a semaphore.
    """

    id: str
    client: str
    lifetime: Lifetime
    token: int
    expires: int
    metadata: str
    since: int
    mode: Mode
    permits: int
    step: int
    offered: int
    limit: int = 0

    def record(self) -> HoldRecord:
        """The hold, unchecked."""
        hold = ExclusiveRow(*self[:7], None).record()
        free_from = free_from_of(hold.metadata) if self.mode == "permits" else 0.0
        how: dict[str, Any] = {"mode": self.mode, "permits": self.permits, "step": self.step}
        return hold._replace(**how, free_from=free_from, offered=bool(self.offered))


class WaiterRow(NamedTuple):
    """A waiter, as the statement "waiters" reads it."""

    ticket: int
    id: str
    client: str
    lease: int
    metadata: str
    since: int
    polls: int
    liveness_key: str | int | None
    mode: Mode
    permits: int
    expires: int
    dead: int

    def claim(self, name: str) -> Claim:
        """The claim; Unreadable if it cannot be read."""
        columns = self.id, self.client, self.lease, self.metadata, self.since
        claim = claim_of(name, (*columns, self.mode, self.permits))
        return claim._replace(last_seen=self.expires / 1e6 - WAITER_LASTS)


def hold_of(name: str, columns: tuple[Any, ...]) -> HoldRecord:
    """An exclusive hold as the listings have it; Unreadable if it cannot be read."""
    return checked_in(name, LOCKS, ExclusiveRow(*columns).record())


def shared_hold_of(name: str, columns: tuple[Any, ...]) -> HoldRecord:
    """A hold that is not exclusive; Unreadable if it cannot be read."""
    return checked_in(name, HOLDS, SharedRow(*columns).record())


def limit_of(name: str, columns: tuple[Any, ...]) -> int:
    """The number of permits that is listed beside a hold; 0 if the lock is no semaphore. Unreadable
    if it is no number of permits.
    """
    row = SharedRow(*columns)
    if row.mode != "permits":
        return 0
    _check(name, "permits", row.limit, is_count(row.limit))
    return int(row.limit)


def claim_of(name: str, columns: tuple[Any, ...]) -> Claim:
    """The claim of a waiter as the listings have it; Unreadable if it cannot be read."""
    claim_id, client, lease, metadata, since, mode, permits = columns
    claim = Claim(name, claim_id, client, _seconds(lease), metadata, _seconds(since))
    return checked_in(name, QUEUE, claim._replace(mode=mode, permits=permits))


def hold_columns(hold: HoldRecord) -> dict[str, Value]:
    """The columns of a hold in either table."""
    return {
        "id": hold.id,
        "client": hold.client,
        "lifetime": hold.lifetime,
        "token": hold.token,
        "expires": micros(hold.expires),
        "metadata": hold.metadata,
        "since": micros(hold.since),
        "mode": hold.mode,
        "permits": hold.permits,
        "step": hold.step,
        "offered": int(hold.offered),
    }


def seen_columns(claim: Claim) -> dict[str, Value]:
    """The columns that change when a waiter asks again."""
    return {"id": claim.id, "expires": micros(claim.last_seen + WAITER_LASTS)}


def claim_columns(claim: Claim) -> dict[str, Value]:
    """The other columns of a waiter."""
    return {
        "client": claim.client,
        "lease": micros(claim.lease),
        "metadata": claim.metadata,
        "since": micros(claim.since),
        "mode": claim.mode,
        "permits": claim.permits,
    }


def checked_in(name: str, table: str, record: Record) -> Record:
    """The record, which is in a row of that table; Unreadable if it cannot be read."""
    return checked(record, *_key(name, table))


def _key(name: str, table: str) -> tuple[str, str]:
    """Where a row is, and the statement that removes it."""
    readable = readable_text(name)
    literal = readable.replace("'", "''")
    return (
        f"a row of {readable!r} in the table {table}",
        f"DELETE FROM {table} WHERE name = '{literal}'",
    )


def _check(name: str, column: str, value: object, valid: bool) -> None:
    if not valid:
        index, removal = _key(name, LOCKS)
        raise unreadable(index, f"{column} is {value!r}", removal)
