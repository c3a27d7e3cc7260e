"""One lock of protocol "lease", during a transaction that has locked its row.

Everything that the rules may need is read in one script before they run, and everything they change
is written in one script after. So a transaction takes two round trips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._core.backend import WATCH_LASTS, Claim, HoldRecord, Unreadable
from leaselock._core.marks import free_from_of
from leaselock._core.records import (
    certainly_ended,
    checked,
    is_count,
    is_time,
    readable_text,
    unreadable,
)
from leaselock._core.rules import RECHECK_INTERVAL, LockRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock._backends.sql.statements import Part, Result, Row, Script, Value
    from leaselock._core.records import Record

TOMBSTONE_LASTS = 120.0
# A waiter asks again every RECHECK_INTERVAL. One that has not asked for this many seconds is dead.
WAITER_LASTS = 7 * RECHECK_INTERVAL
LAST_TICKET = 2**63 - 1
LOCKS, HOLDS, QUEUE = "leaselock_lock", "leaselock_hold", "leaselock_waiter"
# The place of the waiters in the results of `reading`.
WAITERS = 6
# The prefixes of watchers in the table of tombstones: of a client that listens, and of one that
# polls for stored wake-ups.
LISTENS, POLLS = "watch:", "watch-by-polling:"


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


class MoreWaiters(Exception):
    """The decision depends on waiters that were not read: those that were are dead or stopped, or
    share the lock.
    """


class Head(NamedTuple):
    """How much is read of the head of a queue."""

    exclusive: int
    """At most this many exclusive waiters: behind a living one no other is granted the lock."""
    waiters: int
    """But no more waiters than that."""

    def larger(self) -> Head:
        """The next size to try."""
        return Head(4 * self.exclusive, 4 * self.waiters)

    def end(self, waiters: list[Waiter]) -> int:
        """The ticket behind which waiters may be missing. *waiters* are in the order of tickets."""
        exclusive = [each.ticket for each in waiters if each.claim.mode == "exclusive"]
        ends = [each.ticket for each in waiters[self.waiters - 1 : self.waiters]]
        return min([*exclusive[self.exclusive - 1 : self.exclusive], *ends, LAST_TICKET])


HEAD = Head(3, 1000)


def reading_waiters(name: str, claim_id: str, head: Head) -> Part:
    """Read the head of the queue, its tail, and the neighbours of a claim."""
    exclusives, waiters = head.exclusive - 1, head.waiters
    return "waiters", {"name": name, "id": claim_id, "exclusives": exclusives, "most": waiters}


def reading(name: str, claim_id: str, head: Head) -> Script:
    """Begin the transaction and read everything that `SqlLockRow` needs."""
    values = {"name": name, "id": claim_id}
    return (
        "begin",
        ("lock", values),
        ("expire waiters", values),
        ("expire tombstones", values),
        "now",
        ("tombstone", values),
        reading_waiters(name, claim_id, head),
        ("holds", values),
    )


class SqlLockRow(LockRow):
    """The lock of one name; `leaselock._core.rules.LockRow` describes the methods."""

    def __init__(
        self, name: str, requester: Requester, row: Row, results: list[Result], head: Head
    ) -> None:
        self.name = name
        self.requester = requester
        self.writes: list[Part] = []
        _check_row(name, row)
        self.token: int = row[0]
        self.pending: int = row[1]
        # The exclusive hold is in the row of the lock, all others are in a table of their own.
        self.in_table = {each[0] for each in results[7].rows}
        self.limit: int = row[11]
        self.lapsed_offer: float = row[12] / 1e6
        self.before = (self.limit, self.lapsed_offer)
        self.changed = bool(results[2].amount or results[3].amount)
        self.pending -= results[2].amount + results[3].amount
        self.clock: int = results[4].rows[0][0]
        self.now = self.wall = self.clock / 1e6
        shared = map(_shared_hold, results[7].rows)
        self.kept = [hold for hold in (*_held(row), *shared) if self._keeps(hold)]
        self.tombstones: set[str] = {row[0] for row in results[5].rows}
        self.waiters = sorted(_waiter(name, row) for row in results[WAITERS].rows)
        # Waiters may be missing behind this ticket.
        self.head_end = head.end(self.waiters)
        # A waiter may be skipped by mistake if only its listener is gone. The holder may not.
        spared = {requester.client, *(hold.client for hold in self.kept)}
        self.dead = {row[2] for row in results[WAITERS].rows if row[11]} - spared
        self.local: list[str] = []
        self.polling: set[str] = {w.claim.id for w in self.waiters if w.polls}
        self.listening: set[str] = {w.claim.id for w in self.waiters if not w.polls}
        self.polling |= {mark[len(POLLS) :] for mark in self.tombstones if mark.startswith(POLLS)}
        self.listening |= {m[len(LISTENS) :] for m in self.tombstones if m.startswith(LISTENS)}
        self.to_interrupt: list[str] = []

    def _keeps(self, hold: HoldRecord) -> bool:
        """Whether the hold is to be decided upon; Unreadable if it cannot be read and may last."""
        in_table = hold.id in self.in_table
        try:
            _checked(self.name, HOLDS if in_table else LOCKS, hold)
        except Unreadable:
            if not certainly_ended(hold, self.now):
                raise
            self._remove_from_table(hold.id)
            self.changed = True
            return False
        return True

    def holds(self) -> list[HoldRecord]:
        """The holds on record."""
        return list(self.kept)

    def draw(self, count: int) -> int:
        """A new token."""
        self.token = max(self.token + 1, self.clock)
        return self.token

    def put(self, hold: HoldRecord) -> None:
        """Record a hold, or changes of one."""
        known = self._take_out(hold.id)
        self.kept = sorted([*self.kept, hold], key=lambda each: each.token)
        self.changed = True
        if hold.mode == "exclusive":
            self._remove_from_table(hold.id)
        else:
            self._count_pending(0 if hold.id in self.in_table else 1)
            self.in_table.add(hold.id)
            self.writes.append(("put hold", {"name": self.name, **_columns(hold)}))
        if known is None or known.token != hold.token:
            self.notify_watchers()

    def remove(self, hold_id: str) -> None:
        """Delete a hold."""
        self._take_out(hold_id)
        self._remove_from_table(hold_id)
        self.changed = True
        self.notify_watchers()

    def _take_out(self, hold_id: str) -> HoldRecord | None:
        taken = next((hold for hold in self.kept if hold.id == hold_id), None)
        self.kept = [hold for hold in self.kept if hold is not taken]
        return taken

    def _remove_from_table(self, hold_id: str) -> None:
        if hold_id in self.in_table:
            self.in_table.discard(hold_id)
            self._count_pending(-1)
            self.writes.append(("remove hold", {"name": self.name, "id": hold_id}))

    def _find(self, claim_id: str) -> int | None:
        indexes = (i for i, waiter in enumerate(self.waiters) if waiter.claim.id == claim_id)
        return next(indexes, None)

    def queue(self) -> Iterator[Claim]:
        """The waiters at the head; MoreWaiters if there are others behind those that were read."""
        for waiter in list(self.waiters):
            if waiter.ticket > self.head_end:
                raise MoreWaiters
            yield waiter.claim

    def idle(self) -> bool:
        """Whether there is neither a hold nor a waiter."""
        return not self.kept and not self.waiters

    def has_queue(self) -> bool:
        """Whether there are waiters."""
        return bool(self.waiters)

    def queued(self, claim_id: str) -> bool:
        """Whether the claim waits."""
        return self._find(claim_id) is not None

    def ahead(self, claim_id: str) -> Iterator[Claim]:
        """The waiters ahead that were read, the nearest first; then MoreWaiters if there may be
        others.
        """
        ahead = self.waiters[: self._find(claim_id)]
        for waiter in reversed(ahead):
            yield waiter.claim
        if ahead and ahead[-1].ticket > self.head_end:
            raise MoreWaiters

    def behind(self, claim_id: str) -> Claim | None:
        """The waiter directly behind."""
        index = self._find(claim_id)
        if index is None or index + 1 == len(self.waiters):
            return None
        return self.waiters[index + 1].claim

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
        if self.queued(claim.id):
            self.writes.append(("refresh waiter", seen))
            return
        ticket = self.waiters[-1].ticket + 1 if self.waiters else 1
        self.waiters.append(Waiter(ticket, claim._replace(last_seen=self.moment), polls))
        self._count_pending(1)
        times: dict[str, Value] = {"lease": micros(claim.lease), "since": micros(claim.since)}
        values: dict[str, Value] = {
            "ticket": ticket,
            "client": claim.client,
            "metadata": claim.metadata,
            "mode": claim.mode,
            "permits": claim.permits,
        }
        self.writes.append(("enqueue", {**seen, **times, **values}))

    def _count_pending(self, more: int) -> None:
        self.pending += more
        self.changed = True

    def quit(self, claim_id: str) -> bool:
        """Remove from the queue."""
        index = self._find(claim_id)
        if index is None:
            return False
        del self.waiters[index]
        self._count_pending(-1)
        self.writes.append(("dequeue", {"name": self.name, "id": claim_id}))
        return True

    def touch(self, client: str) -> None:
        """All waiters of *client* that were read have asked now."""
        for index, waiter in enumerate(self.waiters):
            if waiter.claim.client == client and waiter.claim.last_seen < self.lapsed_offer:
                touched = waiter.claim._replace(last_seen=self.moment)
                self.waiters[index] = waiter._replace(claim=touched)
                self.writes.append(("touch waiter", self._touched(waiter.claim.id)))
        if all(waiter.claim.last_seen >= self.lapsed_offer for waiter in self.waiters):
            self.lapsed_offer = 0.0

    def _touched(self, claim_id: str) -> dict[str, Value]:
        expires = self.clock + micros(WAITER_LASTS)
        return {"name": self.name, "id": claim_id, "expires": expires}

    def alive(self, client: str) -> bool:
        """Whether the client is alive, judging by its waiters in this queue."""
        return client not in self.dead

    def has_tombstone(self, claim_id: str) -> bool:
        """Whether the claim has a tombstone."""
        return claim_id in self.tombstones

    def tombstone(self, claim_id: str) -> None:
        """Record a tombstone, which lasts longer than a request can be under way."""
        self._mark(claim_id, TOMBSTONE_LASTS)

    def _mark(self, text: str, seconds: float) -> None:
        expires = self.clock + micros(seconds)
        self._count_pending(0 if text in self.tombstones else 1)
        self.tombstones.add(text)
        self.writes.append(("add tombstone", {"name": self.name, "id": text, "expires": expires}))

    def observe(self, claim: Claim) -> bool:
        """Notify the claim when a hold begins or ends. It counts as pending: the fast paths, which
        notify no watcher, do not apply.
        """
        self._mark((POLLS if self.requester.polls else LISTENS) + claim.id, WATCH_LASTS)
        return True

    def notify_watchers(self) -> None:
        """Notify the claims that observe the lock, and whose time has not passed."""
        for mark in sorted(self.tombstones):
            prefix, separator, claim_id = mark.partition(":")
            if f"{prefix}:" in (LISTENS, POLLS) and separator:
                client = claim_id.rpartition(":")[0]
                self.notify(claim_id, client)

    def notify(self, claim_id: str, client: str) -> None:
        """Notify the client at commit; the requester is notified by the reply."""
        if client == self.requester.client:
            self.local.append(claim_id)
            return
        values: dict[str, Value] = {"client": client, "id": claim_id}
        # Of a claim that neither waits nor watches it is not known how its client is notified: as
        # the requester is. MySQL has no other way.
        unknown = claim_id not in self.listening
        if claim_id in self.polling or (unknown and self.requester.polls):
            self.to_interrupt.append(client)
            expires = self.clock + micros(WAITER_LASTS)
            self.writes.append(("store wakeup", {**values, "expires": expires}))
        else:
            self.writes.append(("notify", {**values, "channel": channel(client)}))

    def notified(self) -> tuple[str, ...]:
        """The notified claims of the requesting client."""
        return tuple(self.local)

    def writing(self) -> Script:
        """Write the changes and commit."""
        if self.changed or self.before != (self.limit, self.lapsed_offer):
            self.writes.append(("update lock", self._stored()))
        return (*self.writes, "commit")

    def _stored(self) -> dict[str, Value]:
        values: dict[str, Value] = dict.fromkeys(
            ("id", "client", "lifetime", "expires", "metadata", "free_from"), None
        )
        values |= {"step": 0, "offered": 0, "since": self.clock}
        for held in self.kept:
            if held.mode == "exclusive":
                values |= _columns(held)
                values["free_from"] = micros(held.free_from) or None
        values |= {"name": self.name, "token": self.token, "pending": self.pending}
        return values | {"permits": self.limit, "lapsed_offer": micros(self.lapsed_offer)}


def _columns(hold: HoldRecord) -> dict[str, Value]:
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


def _seconds(micros: Any) -> Any:
    """A time of the tables in seconds. NULL stays None, which `checked` refuses."""
    return None if micros is None else micros / 1e6


def _checked(name: str, table: str, record: Record) -> Record:
    return checked(record, *_key(name, table))


def _key(name: str, table: str) -> tuple[str, str]:
    """Where a row is, and the statement that removes it."""
    readable = readable_text(name)
    literal = readable.replace("'", "''")
    return (
        f"a row of {readable!r} in the table {table}",
        f"DELETE FROM {table} WHERE name = '{literal}'",
    )


def _check_row(name: str, row: Row) -> None:
    """Unreadable if what the row of a lock has beside its hold cannot be used."""
    token, limit, lapsed_offer = row[0], row[11], row[12]
    _check(name, "token", token, is_count(token))
    _check(name, "permits", limit, is_count(limit))
    _check(name, "lapsed_offer", lapsed_offer, is_time(_seconds(lapsed_offer)))


def _check(name: str, column: str, value: object, valid: bool) -> None:
    if not valid:
        index, removal = _key(name, LOCKS)
        raise unreadable(index, f"{column} is {value!r}", removal)


def limit_of(name: str, row: Row) -> int:
    """The number of permits that the row of a shared hold has beside it; 0 if it is no semaphore.
    Unreadable if it is no number of permits.
    """
    mode, limit = row[7], row[11]
    if mode != "permits":
        return 0
    _check(name, "permits", limit, is_count(limit))
    return int(limit)


def _held(row: Row) -> list[HoldRecord]:
    token, _, claim_id, *rest = row[:11]
    if claim_id is None:
        return []
    hold = _hold((claim_id, *rest[:2], token, *rest[2:6]))
    return [hold._replace(step=rest[6], offered=bool(rest[7]))]


def hold_of(name: str, row: Row) -> HoldRecord:
    """The exclusive hold of a row as the listings have it; Unreadable if it cannot be read."""
    return _checked(name, LOCKS, _hold(row))


def shared_hold(name: str, row: Row) -> HoldRecord:
    """A hold that is not exclusive; Unreadable if it cannot be read."""
    return _checked(name, HOLDS, _shared_hold(row))


def _hold(row: Row) -> HoldRecord:
    claim_id, client, lifetime, token, expires, metadata, since, free_from = row
    times = _seconds(expires), metadata, _seconds(since)
    hold = HoldRecord(claim_id, client, lifetime, token, *times)
    return hold._replace(free_from=_seconds(free_from or 0))


def _shared_hold(row: Row) -> HoldRecord:
    mode, permits, step, offered = row[7:11]
    hold = _hold((*row[:7], None))
    free_from = free_from_of(hold.metadata) if mode == "permits" else 0.0
    how: dict[str, Any] = {"mode": mode, "permits": permits, "step": step}
    return hold._replace(**how, free_from=free_from, offered=bool(offered))


def claim_of(name: str, row: Row) -> Claim:
    """The claim of a waiter as the listings have it; Unreadable if it cannot be read."""
    claim_id, client, lease, metadata, since, mode, permits = row
    claim = Claim(name, claim_id, client, _seconds(lease), metadata, _seconds(since))
    return _checked(name, QUEUE, claim._replace(mode=mode, permits=permits))


def _waiter(name: str, row: Row) -> Waiter:
    ticket, claim_id, client, lease, metadata, since, polls, _, mode, permits, expires, _ = row
    claim = claim_of(name, (claim_id, client, lease, metadata, since, mode, permits))
    return Waiter(ticket, claim._replace(last_seen=expires / 1e6 - WAITER_LASTS), bool(polls))
