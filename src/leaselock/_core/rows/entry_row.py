"""A lock's row as plain dictionaries: for a store that reads and writes a lock as a whole."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from leaselock._core.rows.rules import LockRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leaselock._core.contract.backend import Claim, HoldRecord


class Entry:
    """One lock. A dict keeps the order: of the tokens, and of the arrival of the waiters. Its
    watchers are clients by the ids of their claims, each with the end of its registration.
    """

    __slots__ = ("holds", "lapsed_offer", "limit", "queue", "token", "watchers")

    def __init__(self, token: int = 0) -> None:
        self.token, self.limit = token, 0
        self.lapsed_offer = 0.0
        self.holds: dict[str, HoldRecord] = {}
        self.queue: dict[str, Claim] = {}
        self.watchers: dict[str, tuple[str, float]] = {}


class EntryRow(LockRow):
    """The row of an entry, for one request."""

    entry: Entry
    micros: Callable[[], int]
    """Reads Unix time by the store's clock, in microseconds."""

    @property
    def wall(self) -> float:  # type: ignore[override]
        """Unix time."""
        return self.micros() / 1e6

    @property
    def limit(self) -> int:
        """How many permits it has as a semaphore."""
        return self.entry.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        """Record it."""
        self.entry.limit = limit

    @property
    def lapsed_offer(self) -> float:
        """When the last grant began that was not confirmed."""
        return self.entry.lapsed_offer

    @lapsed_offer.setter
    def lapsed_offer(self, lapsed_offer: float) -> None:
        """Record it."""
        self.entry.lapsed_offer = lapsed_offer

    def holds(self) -> list[HoldRecord]:
        """The holds on record."""
        return list(self.entry.holds.values())

    def draw(self) -> int:
        """A new token. The clock is a part of it, so they go on rising when the table is lost."""
        self.entry.token = max(self.entry.token + 1, self.micros())
        return self.entry.token

    def queue(self) -> list[Claim]:
        """The queued claims."""
        return list(self.entry.queue.values())

    def idle(self) -> bool:
        """Whether there is neither a hold nor a queued claim."""
        return not (self.entry.holds or self.entry.queue)

    def has_queue(self) -> bool:
        """Whether any claim is queued."""
        return bool(self.entry.queue)

    def queued(self, claim_id: str) -> bool:
        """Whether the claim is queued."""
        return claim_id in self.entry.queue

    def ahead(self, claim_id: str) -> Iterator[Claim]:
        """The queued claims ahead of *claim_id*, which is nearly always at the tail."""
        claims = reversed([*self.entry.queue.values()])
        if claim_id in self.entry.queue:
            return itertools.islice(
                itertools.dropwhile(lambda c: c.id != claim_id, claims), 1, None
            )
        return claims

    def length(self) -> int | None:
        """How many claims are queued."""
        return len(self.entry.queue)

    def behind(self, claim_id: str) -> Claim | None:
        """The claim directly behind."""
        behind = None
        for claim in reversed(self.entry.queue.values()):
            if claim.id == claim_id:
                return behind
            behind = claim
        return None

    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue; one that is queued keeps its position."""
        queued = self.entry.queue.get(claim.id, claim)
        self.entry.queue[claim.id] = queued._replace(last_seen=self.moment, limit=0)

    def quit(self, claim_id: str) -> bool:
        """Take out of the queue; return whether it was there."""
        return self.entry.queue.pop(claim_id, None) is not None

    def touch(self, client: str) -> None:
        """All queued claims of *client* have asked now."""
        queue = self.entry.queue
        for claim in self.queue():
            if claim.client == client:
                queue[claim.id] = claim._replace(last_seen=self.moment)
        if all(claim.last_seen >= self.lapsed_offer for claim in queue.values()):
            self.lapsed_offer = 0.0

    def put(self, hold: HoldRecord) -> None:
        """Record a hold. One with a new token is the last one."""
        holds = self.entry.holds
        known = holds.get(hold.id)
        new = known is None or known.token != hold.token
        if known is not None and new:
            del holds[hold.id]
        holds[hold.id] = hold
        if new and self.entry.watchers:
            self.notify_watchers()

    def remove(self, hold_id: str) -> None:
        """Delete a hold."""
        del self.entry.holds[hold_id]
        if self.entry.watchers:
            self.notify_watchers()

    def notify_watchers(self) -> None:
        """A hold has begun or ended, or the first waiter has arrived."""
