"""One lock of protocol "lease", during a transaction that has locked its row.

Everything that the rules may need is read in one script before they run, and everything they change
is written in one script after. So a transaction takes two round trips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock.core.backend import Claim, HoldRecord
from leaselock.core.rules import RECHECK_INTERVAL

if TYPE_CHECKING:
    from leaselock.backends.sql.statements import Part, Result, Row, Script, Value

TOMBSTONE_LASTS = 120.0
# A waiter asks again every RECHECK_INTERVAL. One that has not asked for so long is dead.
WAITER_LASTS = 2.5 * RECHECK_INTERVAL


def micros(seconds: float) -> int:
    """Seconds as microseconds, the unit of the tables."""
    return round(seconds * 1e6)


def channel(client: str) -> str:
    """The channel that a client listens on."""
    return f"leaselock_{client}"


class Requester(NamedTuple):
    """The client that sends a request, and how it is notified while it waits."""

    client: str
    polls: bool
    liveness_key: str | int | None
    """The key of the lock that the client holds while it listens."""


class Waiter(NamedTuple):
    """One row of the queue."""

    ticket: int
    claim: Claim
    polls: bool


def reading(name: str, claim_id: str) -> Script:
    """Begin the transaction and read everything that `SqlLockRow` needs."""
    values = {"name": name, "id": claim_id}
    return (
        "begin",
        ("lock", values),
        ("expire waiters", values),
        ("expire tombstones", values),
        "now",
        ("tombstone", values),
        ("waiters", values),
    )


class SqlLockRow:
    """The lock of one name; `leaselock.core.rules.LockRow` describes the methods."""

    def __init__(self, name: str, requester: Requester, row: Row, results: list[Result]) -> None:
        self.name = name
        self.requester = requester
        self.token, self.pending = row[0], row[1]
        self.kept = _held(row)
        self.changed = bool(results[2].amount or results[3].amount)
        self.pending -= results[2].amount + results[3].amount
        self.clock: int = results[4].rows[0][0]
        self.now = self.clock / 1e6
        self.tombstones = {row[0] for row in results[5].rows}
        self.waiters = sorted(_waiter(name, row) for row in results[6].rows)
        # A waiter may be skipped by mistake if only its listener is gone. The holder may not.
        spared = {requester.client, self.kept.client if self.kept else ""}
        self.dead = {row[2] for row in results[6].rows if row[8]} - spared
        self.writes: list[Part] = []
        self.local: list[str] = []
        self.polling: set[str] = {w.claim.id for w in self.waiters if w.polls}
        self.to_interrupt: list[str] = []

    def held(self) -> HoldRecord | None:
        """The hold on record."""
        return self.kept

    def grant(self, claim: Claim, expires: float) -> HoldRecord:
        """Record a hold with a new token."""
        self.token = max(self.token + 1, self.clock)
        held = HoldRecord(
            claim.id, claim.client, "either", self.token, expires, claim.metadata, self.now
        )
        self.save(held)
        return held

    def save(self, held: HoldRecord) -> None:
        """Record changes of the same hold."""
        self.kept = held
        self.changed = True

    def free(self) -> None:
        """Record that the lock is free."""
        self.kept = None
        self.changed = True

    def _find(self, claim_id: str) -> int | None:
        found = (i for i, waiter in enumerate(self.waiters) if waiter.claim.id == claim_id)
        return next(found, None)

    def first(self) -> Claim | None:
        """The head of the queue."""
        return self.waiters[0].claim if self.waiters else None

    def before(self, claim_id: str) -> Claim | None:
        """The waiter directly ahead."""
        place = self._find(claim_id)
        return self.waiters[place - 1].claim if place else None

    def after(self, claim_id: str) -> Claim | None:
        """The waiter directly behind."""
        place = self._find(claim_id)
        if place is None or place + 1 == len(self.waiters):
            return None
        return self.waiters[place + 1].claim

    def join(self, claim: Claim) -> None:
        """Append to the queue, or refresh the waiter if it is queued."""
        polls = self.requester.polls
        seen: dict[str, Value] = {
            "name": self.name,
            "id": claim.id,
            "expires": self.clock + micros(WAITER_LASTS),
            "polls": int(polls),
            "liveness_key": self.requester.liveness_key,
        }
        if self._find(claim.id) is not None:
            self.writes.append(("refresh waiter", seen))
            return
        ticket = self.waiters[-1].ticket + 1 if self.waiters else 1
        self.waiters.append(Waiter(ticket, claim, polls))
        self._count_pending(1)
        times: dict[str, Value] = {"lease": micros(claim.lease), "since": micros(claim.since)}
        values: dict[str, Value] = {
            "ticket": ticket,
            "client": claim.client,
            "metadata": claim.metadata,
        }
        self.writes.append(("enqueue", {**seen, **times, **values}))

    def _count_pending(self, more: int) -> None:
        self.pending += more
        self.changed = True

    def quit(self, claim_id: str) -> bool:
        """Remove from the queue."""
        place = self._find(claim_id)
        if place is None:
            return False
        del self.waiters[place]
        self._count_pending(-1)
        self.writes.append(("dequeue", {"name": self.name, "id": claim_id}))
        return True

    def alive(self, client: str) -> bool:
        """Whether the client is alive, judging by its waiters in this queue."""
        return client not in self.dead

    def has_tombstone(self, claim_id: str) -> bool:
        """Whether the claim has a tombstone."""
        return claim_id in self.tombstones

    def tombstone(self, claim_id: str) -> None:
        """Record a tombstone, which lasts longer than a request can be under way."""
        expires = self.clock + micros(TOMBSTONE_LASTS)
        self._count_pending(0 if claim_id in self.tombstones else 1)
        self.tombstones.add(claim_id)
        self.writes.append(
            ("add tombstone", {"name": self.name, "id": claim_id, "expires": expires})
        )

    def watch(self, client: str) -> None:
        """Nothing to do: deaths are not reported; holds and waiters of dead clients expire."""

    def notify(self, claim: Claim) -> None:
        """Notify the client of the claim at commit; the requester is notified by the reply."""
        if claim.client == self.requester.client:
            self.local.append(claim.id)
            return
        values: dict[str, Value] = {"client": claim.client, "id": claim.id}
        if claim.id in self.polling:
            self.to_interrupt.append(claim.client)
            expires = self.clock + micros(WAITER_LASTS)
            self.writes.append(("store wakeup", {**values, "expires": expires}))
        else:
            self.writes.append(("notify", {**values, "channel": channel(claim.client)}))

    def notified(self) -> tuple[str, ...]:
        """The notified claims of the requesting client."""
        return tuple(self.local)

    def writing(self) -> Script:
        """Write the changes and commit."""
        if self.changed:
            self.writes.append(("update lock", self._stored()))
        return (*self.writes, "commit")

    def _stored(self) -> dict[str, Value]:
        values: dict[str, Value] = dict.fromkeys(
            ("id", "client", "lifetime", "expires", "metadata"), None
        )
        held = self.kept
        if held is not None:
            values |= {"id": held.id, "client": held.client, "lifetime": held.lifetime}
            values |= {"expires": micros(held.expires), "metadata": held.metadata}
        since = self.clock if held is None else micros(held.since)
        values |= {"name": self.name, "token": self.token, "pending": self.pending, "since": since}
        return values


def _held(row: Row) -> HoldRecord | None:
    token, _, claim_id, client, lifetime, expires, metadata, since = row
    if claim_id is None:
        return None
    return HoldRecord(claim_id, client, lifetime, token, expires / 1e6, metadata, since / 1e6)


def _waiter(name: str, row: Row) -> Waiter:
    ticket, claim_id, client, lease, metadata, since, polls, *_ = row
    claim = Claim(name, claim_id, client, lease / 1e6, metadata, since / 1e6)
    return Waiter(ticket, claim, bool(polls))
