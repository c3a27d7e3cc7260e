"""The memory store: locks within this process, shared by all clients of the same URL.

Nothing leaves the process, so nothing survives it; a forked child starts with an empty store.
"""

from __future__ import annotations

import fnmatch
import os
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from leaselock.backends import Opened, check_protocol, default_protocol
from leaselock.backends.url import decoded, parse
from leaselock.core import rules
from leaselock.core.backend import (
    WAKE_ALL,
    Acquire,
    BreakLock,
    Busy,
    Capabilities,
    Claim,
    CollectGarbage,
    Doctor,
    Finding,
    HoldRecord,
    Inspect,
    Listen,
    LockState,
    Release,
    Renew,
    SetLifetime,
    Setup,
)
from leaselock.core.queue import NodeQueue
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable

CAPABILITIES = Capabilities(
    clock_drift=0.0,
    clock_margin=0.0,
    life=True,
    inheritable=False,
    token_ranges=True,
    notifies_contention=True,
)
PROTOCOLS = ("queue",)
# There is nothing to configure, to create or to remove.
MAINTENANCE: dict[type, object] = {
    Doctor: (Finding("ok", "the memory of this process"),),
    Setup: (),
    CollectGarbage: 0,
}
# Seconds: longer than a request can be in flight.
TOMBSTONE_TTL = 120.0


class Entry:
    """One lock. The queue is a dict, which keeps the order in which its waiters joined."""

    __slots__ = ("held", "queue", "token")

    def __init__(self) -> None:
        self.token = 0
        self.held: HoldRecord | None = None
        self.queue: dict[str, Claim] = {}


class Table:
    """All locks of one store. It reads no clock and knows no processes: both are handed in."""

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
        self.tombstones: dict[str, float] = {}

    def answer(self, client: str, request: Any) -> object:
        """Carry out one request of *client*."""
        if isinstance(request, Acquire):
            row = MemoryRow(self, client, request.claim.name)
            reply = rules.acquire(row, request)
            return reply._replace(waiting=len(row.entry.queue)) if type(reply) is Busy else reply
        if isinstance(request, Release):
            return rules.release(MemoryRow(self, client, request.claim.name), request)
        if isinstance(request, Renew):
            return tuple(rules.renew(MemoryRow(self, client, c.name), c) for c in request.claims)
        if isinstance(request, Inspect):
            return self._inspect(request)
        if isinstance(request, BreakLock):
            return rules.break_lock(MemoryRow(self, client, request.name), request)
        if isinstance(request, SetLifetime):
            row = MemoryRow(self, client, request.claim.name)
            return rules.set_lifetime(row, request.claim.id, request.lifetime)
        raise TypeError(f"not a request of a lock table: {request!r}")

    def _inspect(self, request: Inspect) -> tuple[LockState, ...]:
        if request.name is not None:
            return (self._state(request.name),)
        names = [n for n in self.entries if fnmatch.fnmatchcase(n, request.pattern)]
        states = [self._state(name) for name in sorted(names)]
        return tuple(state for state in states if state.holds or state.waiting)

    def _state(self, name: str) -> LockState:
        row = MemoryRow(self, "", name)
        held = row.held()
        if held is not None and rules.expired(row, held):
            held = None
        remaining = held.expires - row.now if held and held.lifetime != "client" else None
        waiting = tuple(c for c in row.entry.queue.values() if self.alive(c.client))
        return LockState.exclusive(name, held, remaining, waiting)


class MemoryRow:
    """One lock of a table, for one request of one client: a `rules.LockRow`."""

    def __init__(self, table: Table, client: str, name: str) -> None:
        self.table = table
        self.client = client
        self.now = table.now()
        self.entry = table.entries.get(name) or table.entries.setdefault(name, Entry())
        self.local: list[str] = []

    def held(self) -> HoldRecord | None:
        """The hold on record, which may have expired."""
        return self.entry.held

    def grant(self, claim: Claim, expires: float) -> HoldRecord:
        """Record a hold with a new token. The clock is a part of it, so the tokens go on rising
        when the table is lost.
        """
        micros = self.table.micros()
        token = max(self.entry.token + 1, micros)
        self.entry.token = token + claim.tokens - 1
        told = (claim.metadata, micros / 1e6, claim.tokens, claim.cached)
        held = HoldRecord(claim.id, claim.client, "either", token, expires, *told)
        self.entry.held = held
        return held

    def save(self, held: HoldRecord) -> None:
        """Record changes of the same hold."""
        self.entry.held = held

    def free(self) -> None:
        """Delete the hold on record."""
        self.entry.held = None

    def first(self) -> Claim | None:
        """The head of the queue."""
        return next(iter(self.entry.queue.values()), None)

    def before(self, claim_id: str) -> Claim | None:
        """The waiter directly ahead of *claim_id*, which is nearly always at the tail."""
        ahead = iter(reversed(self.entry.queue.values()))
        for claim in ahead:
            if claim.id == claim_id:
                return next(ahead, None)
        return None

    def after(self, claim_id: str) -> Claim | None:
        """The waiter directly behind *claim_id*."""
        behind = None
        for claim in reversed(self.entry.queue.values()):
            if claim.id == claim_id:
                return behind
            behind = claim
        return None

    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue; one that is queued keeps its place."""
        self.entry.queue.setdefault(claim.id, claim)

    def quit(self, claim_id: str) -> bool:
        """Take out of the queue; return whether it was there."""
        return self.entry.queue.pop(claim_id, None) is not None

    def alive(self, client: str) -> bool:
        """Whether the client is alive; the requesting one is."""
        return client == self.client or self.table.alive(client)

    def has_tombstone(self, claim_id: str) -> bool:
        """Whether the claim is refused for good."""
        return claim_id in self.table.tombstones

    def tombstone(self, claim_id: str) -> None:
        """Refuse the claim from now on."""
        tombstones = self.table.tombstones
        while tombstones and (oldest := next(iter(tombstones))) and tombstones[oldest] <= self.now:
            del tombstones[oldest]
        tombstones.pop(claim_id, None)  # the dict is in the order of their ends
        tombstones[claim_id] = self.now + TOMBSTONE_TTL

    def watch(self, client: str) -> None:
        """Notify the requesting client when *client* dies."""
        if client != self.client:
            self.table.watch(self.client, client)

    def notify(self, claim: Claim) -> None:
        """Notify the claim's client; the requesting one is notified by the reply."""
        if claim.client == self.client:
            self.local.append(claim.id)
        else:
            self.table.notify(claim.client, claim.id)

    def notified(self) -> tuple[str, ...]:
        """The ids of the notified claims that belong to the requesting client itself."""
        return tuple(self.local)


class Room:
    """One store: a table, and the message queues of its clients. A client with one is alive."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.mutex = threading.Lock()
        self.messages: dict[str, SimpleQueue[str | None]] = {}
        self.table = Table(now, _micros, self.messages.__contains__, self._notify, self._watch)

    def _notify(self, client: str, claim_id: str) -> None:
        messages = self.messages.get(client)
        if messages is not None:  # otherwise the client has died
            messages.put(claim_id)

    def _watch(self, client: str, watched: str) -> None:
        """All clients are notified of every death, so there is nothing to remember."""

    def end(self, client: str) -> None:
        """The client has died: every waiter looks again."""
        with self.mutex:
            self.messages.pop(client, None)
            for messages in self.messages.values():
                messages.put(WAKE_ALL)


def _micros() -> int:
    return time.time_ns() // 1000


ROOMS: dict[tuple[int, str], Room] = {}
ROOMS_MUTEX = threading.Lock()


def room_of(name: str, now: Callable[[], float]) -> Room:
    """The room of that name in this very process."""
    with ROOMS_MUTEX:
        return ROOMS.setdefault((os.getpid(), name), Room(now))


class Store:
    """The node of one client that carries out requests."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self.name = name
        self.now = now
        self.client = ""
        self.room = room_of(name, now)

    def enter(self, client: str) -> SimpleQueue[str | None]:
        """Register *client* as alive; return its messages."""
        self.client = client
        return self.room.messages.setdefault(client, SimpleQueue())

    def call(self, request: object, until: float) -> object:
        """Carry out one request. It takes no time worth a deadline."""
        room = self.room
        if isinstance(request, Acquire):
            client = request.claim.client
            with room.mutex:
                if client not in room.messages:
                    self.enter(client)
                self.client = client
                return room.table.answer(client, request)
        if type(request) in MAINTENANCE:
            return MAINTENANCE[type(request)]
        with room.mutex:
            return room.table.answer(self.client, request)

    def interrupt(self) -> None:
        """No call here lasts."""

    def close(self) -> None:
        """The client ends."""
        self.room.end(self.client)

    def after_fork(self) -> None:
        """Enter the room of the child."""
        global ROOMS_MUTEX
        ROOMS_MUTEX = threading.Lock()
        self.client = ""
        self.room = room_of(self.name, self.now)


class Listener:
    """The node of one client that waits for messages."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.messages: SimpleQueue[str | None] | None = None
        self.ended = False

    def call(self, request: object, until: float) -> object:
        """The next message, however long it takes."""
        if not isinstance(request, Listen):
            raise TypeError(f"not a request of a listener: {request!r}")
        with self.store.room.mutex:
            self.messages = self.store.enter(request.client)
        # A call that was interrupted before it began must not wait.
        message = None if self.ended else self.messages.get()
        if message is None:
            raise NotApplied("the client was closed")
        return (message,)

    def interrupt(self) -> None:
        """End the present call, and those to come until `close`."""
        self.ended = True
        if self.messages is not None:
            self.messages.put(None)

    def close(self) -> None:
        """Be ready to be used again."""
        self.messages = None
        self.ended = False

    def after_fork(self) -> None:
        """Forget the messages of the parent."""
        self.close()


def open_store(url: str, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The room that ``memory://room`` names."""
    parts = parse(url)
    default = default_protocol(parts, PROTOCOLS, "memory")
    store = Store(decoded(parts.authority + parts.path), now)
    listener = Listener(store)

    def backend(protocol: str | None) -> NodeQueue:
        check_protocol(protocol, PROTOCOLS, "memory")
        return NodeQueue(CAPABILITIES, store, listener)

    return Opened(backend, default, url, blocking=(store, listener))
