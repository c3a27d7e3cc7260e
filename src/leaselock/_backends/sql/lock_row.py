"""One lock of protocol "lease", during a transaction that has locked its row.

Everything that the rules may need is read in one script before they run. They decide on it as on a
lock in memory, and the difference is written in one script after. So a transaction takes two round
trips.

Invariant: `leaselock_lock.pending` is the number of rows that the name has in the tables of holds,
of waiters and of tombstones (with the watchers). Who inserts or deletes such a row changes it in
the same transaction. At 0 the fast paths of `lease` see the row of the lock only.

Read are the first waiters, the last two, and two on each side of the claim that asks. A decision
that needs another one raises MoreWaiters, and is made again with more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock._backends.sql.records import (
    HOLDS,
    LOCKS,
    WAITER_LASTS,
    LockColumns,
    SharedRow,
    WaiterRow,
    checked_in,
    claim_columns,
    hold_columns,
    micros,
    seen_columns,
)
from leaselock._core.contract.backend import WATCH_LASTS, Claim, HoldRecord, Unreadable
from leaselock._core.rows.entry_row import Entry, EntryRow
from leaselock._core.rows.records import certainly_ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock._backends.sql.statements import Part, Result, Script, Value

TOMBSTONE_LASTS = 120.0
LAST_TICKET = 2**63 - 1
# The prefixes of watchers in the table of tombstones: of a client that listens, and of one that
# polls for stored wake-ups.
LISTENS, POLLS = "watch:", "watch-by-polling:"


def channel(client: str) -> str:
    """The channel that a client listens on."""
    return f"leaselock_{client}"


class Requester(NamedTuple):
    """The client that sends a request, and how it is notified while it waits."""

    client: str
    polls: bool
    liveness_key: str | int | None
    """The key of the lock that the client holds while it listens."""


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

    def end(self, waiters: list[WaiterRow]) -> int:
        """The ticket behind which waiters may be missing. *waiters* are in the order of tickets."""
        exclusive = [each.ticket for each in waiters if each.mode == "exclusive"]
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


class Found(NamedTuple):
    """The results of `reading`."""

    begun: Result
    lock: Result
    expired_waiters: Result
    expired_tombstones: Result
    now: Result
    tombstones: Result
    waiters: Result
    holds: Result


class SqlLockRow(EntryRow):
    """The lock of one name: what was found, what the rules make of it, and the difference."""

    def __init__(self, name: str, requester: Requester, found: Found, head: Head) -> None:
        self.name = name
        self.requester = requester
        columns = LockColumns(*found.lock.rows[0])
        columns.check(name)
        ((self.clock,),) = found.now.rows
        self.now = self.clock / 1e6
        self.micros = lambda: self.clock
        entry = self.entry = Entry(columns.token)
        entry.limit, entry.lapsed_offer = columns.permits, columns.lapsed_offer / 1e6

        exclusive = columns.exclusive()
        shared = (SharedRow(*row).record() for row in found.holds.rows)
        self.shared_before = {hold.id: hold for hold in shared}
        held = [] if exclusive is None else [exclusive]
        for hold in (*held, *self.shared_before.values()):
            if self._keeps(hold):
                entry.holds[hold.id] = hold

        waiters = sorted(WaiterRow(*row) for row in found.waiters.rows)
        self.tickets = {waiter.id: waiter.ticket for waiter in waiters}
        self.queue_before = {waiter.id: waiter.claim(name) for waiter in waiters}
        entry.queue = dict(self.queue_before)
        # The rules change `entry`, `pending`, `marks`, and the waiters that were taken out.
        # One that comes again is new.
        self.left: set[str] = set()
        # Waiters may be missing behind this ticket.
        self.head_end = head.end(waiters)
        # A waiter may be skipped by mistake if only its listener is gone. The holder may not.
        spared = {requester.client, *(hold.client for hold in entry.holds.values())}
        self.dead = {waiter.client for waiter in waiters if waiter.dead} - spared

        self.polling = {waiter.id for waiter in waiters if waiter.polls}
        self.listening = {waiter.id for waiter in waiters if not waiter.polls}
        self.marks_before: set[str] = {row[0] for row in found.tombstones.rows}
        # New tombstones and watchers, and when each ends.
        self.marks: dict[str, int] = {}
        for mark in sorted(self.marks_before):
            self._find_watcher(mark)

        expired = found.expired_waiters.amount + found.expired_tombstones.amount
        # `before` has it as it was: rows that have expired make a difference, so it is written.
        self.pending = columns.pending - expired
        lock = (columns.pending, columns.token, entry.limit, entry.lapsed_offer)
        self.before = (*lock, exclusive)
        # What is to be sent.
        self.local: list[str] = []
        self.messages: list[Part] = []
        self.to_interrupt: list[str] = []

    def _keeps(self, hold: HoldRecord) -> bool:
        """Whether the hold is to be decided upon; Unreadable if it cannot be read and may last."""
        try:
            checked_in(self.name, HOLDS if hold.id in self.shared_before else LOCKS, hold)
        except Unreadable:
            if not certainly_ended(hold, self.now):
                raise
            return False
        return True

    def _find_watcher(self, mark: str) -> None:
        """Note who watches, and how that client is notified, if *mark* is the one of a watcher."""
        for prefix, notified in ((LISTENS, self.listening), (POLLS, self.polling)):
            if mark.startswith(prefix):
                claim_id = mark.removeprefix(prefix)
                notified.add(claim_id)
                # The transaction has removed those whose time has passed.
                self.entry.watchers[claim_id] = (claim_id.rpartition(":")[0], 0.0)

    # --- the queue, of which a part was read

    def queue(self) -> Iterator[Claim]:  # type: ignore[override]
        """The waiters at the head; MoreWaiters if there are others behind those that were read."""
        for claim in list(self.entry.queue.values()):
            if self.tickets[claim.id] > self.head_end:
                raise MoreWaiters
            yield claim

    def ahead(self, claim_id: str) -> Iterator[Claim]:
        """The waiters ahead that were read, the nearest first; then MoreWaiters if there may be
        others.
        """
        nearest = None
        for claim in super().ahead(claim_id):
            nearest = nearest or claim
            yield claim
        if nearest is not None and self.tickets[nearest.id] > self.head_end:
            raise MoreWaiters

    def length(self) -> int | None:
        """None: to count the waiters takes another statement."""
        return None

    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue; one that is queued keeps its position."""
        if not self.queued(claim.id):
            self.tickets[claim.id] = 1 + max(self.tickets.values(), default=0)
        super().join(claim)

    def quit(self, claim_id: str) -> bool:
        """Take out of the queue; return whether it was there."""
        self.left.add(claim_id)
        return super().quit(claim_id)

    def touch(self, client: str) -> None:
        """All waiters of *client* that were read, and that are passed over, have asked now."""
        queue = self.entry.queue
        for claim in queue.values():
            if claim.client == client and claim.last_seen < self.lapsed_offer:
                queue[claim.id] = claim._replace(last_seen=self.moment)
        if all(claim.last_seen >= self.lapsed_offer for claim in queue.values()):
            self.lapsed_offer = 0.0

    def alive(self, client: str) -> bool:
        """Whether the client is alive, judging by its waiters in this queue."""
        return client not in self.dead

    # --- tombstones and watchers, which share a table

    def has_tombstone(self, claim_id: str) -> bool:
        """Whether the claim has a tombstone."""
        return claim_id in self.marks_before or claim_id in self.marks

    def tombstone(self, claim_id: str) -> None:
        """Record a tombstone, which lasts longer than a request can be under way."""
        self.marks[claim_id] = self.clock + micros(TOMBSTONE_LASTS)

    def observe(self, claim: Claim) -> bool:
        """Notify the claim when a hold begins or ends. It counts as pending: the fast paths, which
        notify no watcher, do not apply.
        """
        mark = (POLLS if self.requester.polls else LISTENS) + claim.id
        self.marks[mark] = self.clock + micros(WATCH_LASTS)
        self._find_watcher(mark)
        return True

    def notify_watchers(self) -> None:
        """Notify the claims that observe the lock."""
        for claim_id, (client, _) in self.entry.watchers.items():
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
            self.messages.append(("store wakeup", {**values, "expires": expires}))
        else:
            self.messages.append(("notify", {**values, "channel": channel(client)}))

    def notified(self) -> tuple[str, ...]:
        """The notified claims of the requesting client."""
        return tuple(self.local)

    # --- the difference

    def writing(self) -> Script:
        """Write the changes and commit."""
        holds, queue = self.entry.holds.values(), self.entry.queue
        shared = {hold.id: hold for hold in holds if hold.mode != "exclusive"}
        removed = [each for each in self.shared_before if each not in shared]
        left = [each for each in self.queue_before if each in self.left or each not in queue]
        self.pending += len(shared) - len(self.shared_before)
        self.pending += len(queue) - len(self.queue_before)
        self.pending += len(self.marks.keys() - self.marks_before)
        exclusive = next((hold for hold in holds if hold.mode == "exclusive"), None)
        lock = (self.pending, self.entry.token, self.limit, self.lapsed_offer, exclusive)
        return (
            *(self._part("remove hold", id=each) for each in removed),
            *(self._part("dequeue", id=each) for each in left),
            *self._changed_holds(shared),
            *self._changed_waiters(),
            *(
                self._part("add tombstone", id=each, expires=end)
                for each, end in self.marks.items()
            ),
            *([self._lock(exclusive)] if lock != self.before else ()),
            *self.messages,
            "commit",
        )

    def _part(self, title: str, **values: Value) -> Part:
        return title, {"name": self.name, **values}

    def _changed_holds(self, shared: dict[str, HoldRecord]) -> Iterator[Part]:
        for hold in shared.values():
            if hold != self.shared_before.get(hold.id):
                yield self._part("put hold", **hold_columns(hold))

    def _changed_waiters(self) -> Iterator[Part]:
        polls, liveness_key = int(self.requester.polls), self.requester.liveness_key
        reached: dict[str, Value] = {"polls": polls, "liveness_key": liveness_key}
        for claim in self.entry.queue.values():
            before = self.queue_before.get(claim.id)
            if before is None or claim.id in self.left:
                columns = {**seen_columns(claim), **claim_columns(claim), **reached}
                yield self._part("enqueue", ticket=self.tickets[claim.id], **columns)
            elif claim.last_seen != before.last_seen:
                yield self._part("refresh waiter", **seen_columns(claim), **reached)

    def _lock(self, exclusive: HoldRecord | None) -> Part:
        """The row of the lock. If it is free, its time is when it was used last."""
        values: dict[str, Value] = dict.fromkeys(
            ("id", "client", "lifetime", "expires", "metadata", "free_from"), None
        )
        values |= {"step": 0, "offered": 0, "since": self.clock}
        if exclusive is not None:
            values |= hold_columns(exclusive)
            values["free_from"] = micros(exclusive.free_from) or None
        values |= {"token": self.entry.token, "pending": self.pending, "permits": self.limit}
        values["lapsed_offer"] = micros(self.lapsed_offer)
        return self._part("update lock", **values)
