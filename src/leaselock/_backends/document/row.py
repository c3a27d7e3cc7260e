"""A document as a row that the `rules` work on, for one request.

A hold is over when this client has watched it unchanged for its time: its holder counts from before
it wrote, this client from after it has read. The store's clock can only show that the watch began
earlier (`known`).

Whether a waiter is alive, and whether it was before an offer that was not confirmed, is decided by
the numbers of writes: `moment` is the number of the write that this request would make.

| | |
|---|---|
| `now`, `expires`, `free_from`, `first_seen` | the clock of this client |
| `wall` | Unix time, for tokens and for collecting garbage |
| `stamp` | the latest time that the store's clock may show |
| `n`, `beat`, `moment`, `last_seen`, `lapsed_offer` | numbers of writes, never seconds |
| `lasts`, `free` | lengths of time, from the write `beat` on |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock._backends.document.content import Content, Held
from leaselock._core.rows.entry_row import Entry, EntryRow
from leaselock._core.rows.rules import CONFIRM_WITHIN, FORGET_AFTER, NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock._core.contract.backend import Claim, HoldRecord

# How much faster the clock of a client may run than that of another one, and what their granularity
# may add, in seconds. A holder counts that much less, and a watcher that much more.
DRIFT, MARGIN = 0.001, 0.005
# A waiter is dropped after this number of periods without a sign of life. It writes one in each
# period; all clients together write no more often than a few times a second.
MISSED = 3
PERIOD, PERIOD_EACH = FORGET_AFTER / MISSED, 0.25
# If an offer is not confirmed within ROLL_CALL seconds, the waiters up to this position write that
# they are alive. If the offer then lapses, those that have not are passed over.
ROLL_CALL, ROLL_POSITIONS = 0.3 * CONFIRM_WITHIN, 8
# Times in documents are rounded to this number of digits: a fraction of MARGIN.
DIGITS = 6


class RowContext(NamedTuple):
    """What a row needs besides the document."""

    first_seen: Mapping[tuple[str, int], float]
    """Since when each entry, by its id and beat, was there, by the clock of this client."""
    client: str
    """The client that asks; empty if the request is about no claim."""
    now: float
    """The clock of this client."""
    wall: float
    """Unix time."""
    stamp: float | None
    """The latest time that the store's clock may show."""
    watches: bool = False
    """Whether the store reports changes."""
    shown: bool = False
    """Whether the state is to be shown, and not to be changed."""


class DocumentRow(EntryRow):
    """The row of one document."""

    def __init__(self, content: Content, context: RowContext) -> None:
        self.content = content
        self.context = context
        self.client = context.client
        self.now = context.now
        self.micros = self._micros
        self.n = content.n + 1 if content.n else self._micros()
        self.fenced = False
        self.local: list[str] = []
        self.held = {held.record.id: held for held in content.holds}
        # What is left of the times until which a lock stays taken, without drift and margin: these
        # must not be added with each write anew. The key is the `free_from` that `_timed` has made:
        # of a hold, the rules never change that, and a release renames it (`COOLING`).
        self.free_left: dict[float, float] = {}
        self.entry = Entry(content.token)
        self.entry.limit, self.entry.lapsed_offer = content.limit, content.lapsed_offer
        self.entry.holds = {held.record.id: self._timed(held) for held in content.holds}
        self.entry.queue = {claim.id: claim for claim in content.queue}
        self.stamps = dict(content.stamps)

    def _micros(self) -> int:
        return int(self.context.wall * 1e6)

    def _first_seen(self, entry_id: str, beat: float) -> float:
        """Since when the entry was there; now, if this client has not seen it yet."""
        return self.context.first_seen.get((entry_id, int(beat)), self.now)

    def _timed(self, held: Held) -> HoldRecord:
        """The hold with its end: of our own, or to be shown, after what it lasts; of another
        client, later by drift and margin; while it cools down, at `free_from`.
        """
        record, beat, lasts, free, _ = held
        since = self._first_seen(record.id, beat)
        shown, free_from = self.context.shown, 0.0
        if free is not None:
            free_from = since + (free if shown else free * (1.0 + DRIFT) + MARGIN)
            # The clock of this client may be the fast one of two.
            self.free_left[free_from] = free - (self.now - since) * (1.0 - DRIFT)
        if record.lifetime == "cooling":
            expires = free_from
        elif shown or record.client == self.client:
            expires = since + lasts
        else:
            expires = since + lasts * (1.0 + DRIFT) + MARGIN
        return record._replace(expires=expires, free_from=free_from)

    # --- the result

    def changed(self) -> Content | None:
        """The document as it is to be written; None if nothing has changed."""
        entry = self.entry
        content = self.content._replace(
            token=entry.token,
            limit=entry.limit,
            lapsed_offer=int(entry.lapsed_offer),
            holds=tuple([self.held[hold_id] for hold_id in entry.holds]),
            queue=tuple(entry.queue.values()),
            stamps={key: stamp for key, stamp in self.stamps.items() if key in entry.queue},
        )
        if content.same(self.content) and not self.fenced:
            return None
        return content._replace(n=self.n, at=round(self.context.wall, DIGITS))

    # --- holds

    def put(self, hold: HoldRecord) -> None:
        """Record a hold. It is another beat each time, and lasts from now on: how long others have
        watched the beat before, this client cannot know.
        """
        super().put(hold)
        free = None
        if hold.free_from:
            seconds = self.free_left.get(hold.free_from, hold.free_from - self.now)
            free = max(round(seconds, DIGITS), 0.1**DIGITS)
        lasts = max(round(hold.expires - self.now, DIGITS), 0.0)
        if free is not None and hold.lifetime == "cooling":
            lasts = free
        record = hold._replace(expires=0.0, free_from=0.0)
        self.held[hold.id] = Held(record, self.n, lasts, free, self.context.stamp)

    def lapse(self, hold: HoldRecord) -> None:
        """An offer was not confirmed: pass over the waiters that were not seen alive since it."""
        self.lapsed_offer = max(self.lapsed_offer, self.held[hold.id].beat)

    # --- waiters

    @property
    def moment(self) -> float:
        """The number of the write that this request makes."""
        return self.n

    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue. For one that is queued, write that it is alive when that is
        due; the other waiters of its client are, too.
        """
        queue = self.entry.queue
        queued = queue.get(claim.id)
        if queued is None:
            # Its time is not written until it is granted.
            queue[claim.id] = claim._replace(last_seen=self.n, limit=0, of_rwlock=False)
            self._stamp(claim.id)
        elif self._age(queued) >= self._period() or self.roll_call(claim.id) <= 0.0:
            self._show_alive(claim.client, self.n)

    def touch(self, client: str) -> None:
        """The waiters of *client* that are passed over are alive."""
        self._show_alive(client, self.lapsed_offer)
        if all(claim.last_seen >= self.lapsed_offer for claim in self.entry.queue.values()):
            self.lapsed_offer = 0.0

    def _show_alive(self, client: str, before: float) -> None:
        queue = self.entry.queue
        for claim in list(queue.values()):
            if claim.client == client and claim.last_seen < before:
                queue[claim.id] = claim._replace(last_seen=self.n)
                self._stamp(claim.id)

    def _stamp(self, claim_id: str) -> None:
        """Note the time of the store, so that a new client knows how long the waiter was silent."""
        self.stamps.pop(claim_id, None)
        if self.context.stamp is not None:
            self.stamps[claim_id] = self.context.stamp

    def is_forgotten(self, claim: Claim) -> bool:
        """Whether a waiter was not seen alive for too long."""
        return self._age(claim) >= MISSED * self._period()

    def _age(self, claim: Claim) -> float:
        return self.now - self._first_seen(claim.id, claim.last_seen)

    def _period(self) -> float:
        """How often a waiter writes that it is alive."""
        clients = {claim.client for claim in self.entry.queue.values()}
        return max(PERIOD, PERIOD_EACH * len(clients))

    def position(self, claim_id: str) -> int:
        """How many waiters are ahead."""
        for position, other in enumerate(self.entry.queue):
            if other == claim_id:
                return position
        return len(self.entry.queue)

    def roll_call(self, claim_id: str) -> float:
        """After how many seconds the waiter must write that it is alive: an offer to a waiter ahead
        may lapse. NEVER if there is none.
        """
        queued = self.entry.queue.get(claim_id)
        if queued is None or self.position(claim_id) >= ROLL_POSITIONS:
            return NEVER
        offers = [
            self._first_seen(hold_id, held.beat) + ROLL_CALL - self.now
            for hold_id, held in self.held.items()
            if held.record.offered and held.beat > queued.last_seen and hold_id in self.entry.holds
        ]
        return min(offers, default=NEVER)

    # --- services

    def notify(self, claim_id: str, client: str) -> None:
        """The waiters of this client are woken by the reply, all others by the store."""
        if client == self.client:
            self.local.append(claim_id)

    def notified(self) -> tuple[str, ...]:
        """The waiters of this client that should ask again."""
        return tuple(self.local)

    def observe(self, claim: Claim) -> bool:
        """Whether the store reports changes."""
        return self.context.watches

    def tombstone(self, claim_id: str) -> None:
        """Refuse what is in flight of the claim: every write expects the version that it has read,
        and this request makes another one.
        """
        self.fenced = True
