"""A lock table in memory: the shelves of many locks, and one clock.

The `memory` backend keeps its truth here, and so do the models of other stores.
It knows no time and no processes: both are handed in.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from leaselock.core import rules
from leaselock.core.backend import (
    Acquire,
    BreakLock,
    Claim,
    HoldRecord,
    Inspect,
    LockState,
    Release,
    Renew,
    SetLifetime,
)

if TYPE_CHECKING:
    from collections.abc import Callable

REMEMBER_BURIED = 120.0


class Entry:
    """One lock. The queue is a dict, which keeps the order in which its waiters joined."""

    __slots__ = ("held", "queue", "token")

    def __init__(self) -> None:
        self.token = 0
        self.held: HoldRecord | None = None
        self.queue: dict[str, Claim] = {}


class Table:
    """All locks of one store."""

    def __init__(
        self,
        now: Callable[[], float],
        micros: Callable[[], int],
        alive: Callable[[str], bool],
        notify: Callable[[str, str], None],
        watch: Callable[[str, str], None],
    ) -> None:
        self.now = now
        self.micros = micros
        self.alive = alive
        self.notify = notify
        self.watch = watch
        self.entries: dict[str, Entry] = {}
        self.graves: dict[str, float] = {}

    def answer(self, client: str, request: Any) -> object:
        """Carry out one request of *client*."""
        if isinstance(request, Renew):
            return tuple(rules.renew(MemoryRow(self, client, c.name), c) for c in request.claims)
        if isinstance(request, Inspect):
            return self._inspect(request)
        if isinstance(request, BreakLock):
            return rules.break_lock(MemoryRow(self, client, request.name), request)
        place = MemoryRow(self, client, request.claim.name)
        if isinstance(request, Acquire):
            return rules.acquire(place, request)
        if isinstance(request, Release):
            return rules.release(place, request)
        if isinstance(request, SetLifetime):
            return rules.set_lifetime(place, request.claim.id, request.lifetime)
        raise TypeError(f"not a request of a lock table: {request!r}")

    def _inspect(self, request: Inspect) -> tuple[LockState, ...]:
        if request.name is not None:
            return (self._sight(request.name),)
        names = [n for n in self.entries if fnmatch.fnmatchcase(n, request.pattern)]
        sights = [self._sight(name) for name in sorted(names)]
        return tuple(s for s in sights if s.held or s.waiting)

    def _sight(self, name: str) -> LockState:
        place = MemoryRow(self, "", name)
        held = place.held()
        if held is not None and rules.expired(place, held):
            held = None
        remaining = held.expires - place.now if held and held.lifetime != "client" else None
        waiting = [c for c in place.entry.queue.values() if self.alive(c.client)]
        return LockState(name, held, remaining, tuple(waiting))


class MemoryRow:
    """The shelf of one lock of a table, for one request of one client."""

    def __init__(self, table: Table, client: str, name: str) -> None:
        self.table = table
        self.client = client
        self.now = table.now()
        self.entry = table.entries.get(name) or table.entries.setdefault(name, Entry())
        self.local: list[str] = []

    def held(self) -> HoldRecord | None:
        """The hold on record, which may be over."""
        return self.entry.held

    def grant(self, claim: Claim, expires: float) -> HoldRecord:
        """Record a hold with a new token: a counter that a lost store cannot set back."""
        micros = self.table.micros()
        token = max(self.entry.token + 1, micros)
        self.entry.token = token + claim.tokens - 1
        told = (claim.metadata, micros / 1e6, claim.tokens, claim.cached)
        held = HoldRecord(claim.id, claim.client, "either", token, expires, *told)
        self.entry.held = held
        return held

    def keep(self, held: HoldRecord) -> None:
        """Record changes of the same hold."""
        self.entry.held = held

    def free(self) -> None:
        """Record that nobody holds."""
        self.entry.held = None

    def first(self) -> Claim | None:
        """The head of the queue."""
        return next(iter(self.entry.queue.values()), None)

    def before(self, holder: str) -> Claim | None:
        """Who waits directly ahead of *holder*; it is nearly always at the tail."""
        ahead = iter(reversed(self.entry.queue.values()))
        for claim in ahead:
            if claim.id == holder:
                return next(ahead, None)
        return None

    def after(self, holder: str) -> Claim | None:
        """Who waits directly behind *holder*."""
        behind = None
        for claim in reversed(self.entry.queue.values()):
            if claim.id == holder:
                return behind
            behind = claim
        return None

    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue; one that is queued keeps its place."""
        self.entry.queue.setdefault(claim.id, claim)

    def quit(self, holder: str) -> bool:
        """Take out of the queue."""
        return self.entry.queue.pop(holder, None) is not None

    def alive(self, client: str) -> bool:
        """Whether the client lives; the one that asks does."""
        return client == self.client or self.table.alive(client)

    def has_tombstone(self, holder: str) -> bool:
        """Whether the claim was given up for good."""
        return holder in self.table.graves

    def tombstone(self, holder: str) -> None:
        """Remember, for longer than a request can be under way, that the claim was given up."""
        graves = self.table.graves
        while graves and (oldest := next(iter(graves))) and graves[oldest] <= self.now:
            del graves[oldest]
        graves.pop(holder, None)  # the order is that of their ends
        graves[holder] = self.now + REMEMBER_BURIED

    def watch(self, client: str) -> None:
        """Have the asking client told when *client* dies."""
        if client != self.client:
            self.table.watch(self.client, client)

    def notify(self, claim: Claim) -> None:
        """Tell the claim's client; our own is told by the reply."""
        if claim.client == self.client:
            self.local.append(claim.id)
        else:
            self.table.notify(claim.client, claim.id)

    def notified(self) -> tuple[str, ...]:
        """The woken that belong to the asking client itself."""
        return tuple(self.local)
