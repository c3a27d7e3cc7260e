"""The memory store: locks within this process, shared by all clients of the same URL.

Nothing leaves the process, so nothing survives it; a forked child starts with an empty store.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from leaselock._backends import Opened, check_protocol, default_protocol
from leaselock._backends.url import decoded, parse
from leaselock._core import rules
from leaselock._core.backend import (
    ALL_MODES,
    WAKE_ALL,
    WATCH_LASTS,
    Acquire,
    BreakLock,
    Busy,
    Capabilities,
    Claim,
    CollectGarbage,
    Convert,
    Doctor,
    Finding,
    HoldRecord,
    Inspect,
    Listen,
    LockState,
    Release,
    Renew,
    Resize,
    SetLifetime,
    Setup,
    Watch,
    Watched,
)
from leaselock._core.queue import NodeQueue
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CAPABILITIES = Capabilities(
    clock_drift=0.0,
    clock_margin=0.0,
    detects_death=True,
    inheritable=False,
    token_ranges=True,
    notifies_contention=True,
    min_hold=True,
    modes=ALL_MODES,
    notifies_changes=True,
)
PROTOCOLS = ("queue",)
# There is nothing to configure or to create.
MAINTENANCE: dict[type, object] = {
    Doctor: (Finding("ok", "the memory of this process"),),
    Setup: (),
}
# Seconds: longer than a request can be in flight.
TOMBSTONE_TTL = 120.0
# From so many names on, each new one makes the table look at so many of the others, and remove
# those that are not in use.
MOST_KEPT, LOOKS = 1000, 2
LONGEST_WAIT = 3600.0


class Entry:
    """One lock. A dict keeps the order: of the tokens, and of the arrival of the waiters. Its
    watchers are clients by the ids of their claims, each with the end of its registration.
    """

    __slots__ = ("doubt", "holds", "limit", "queue", "token", "watchers")

    def __init__(self, token: int) -> None:
        self.token, self.limit = token, 0
        self.doubt = 0.0
        self.holds: dict[str, HoldRecord] = {}
        self.queue: dict[str, Claim] = {}
        self.watchers: dict[str, tuple[str, float]] = {}


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
        # The greatest token of the entries that were removed: later ones are greater.
        self.floor = 0

    def entry(self, name: str) -> Entry:
        """The entry of a lock, which begins now if there is none."""
        entry = self.entries.get(name)
        if entry is None:
            if len(self.entries) >= MOST_KEPT:
                for other in [*itertools.islice(self.entries, LOOKS)]:
                    # One in use, and the number of permits of a semaphore, is not looked at soon.
                    kept = self.entries.pop(other)
                    self.entries[other] = kept
                    if not kept.limit:
                        self._remove_unused(other)
            entry = self.entries[name] = Entry(self.floor)
        return entry

    def _remove_unused(self, name: str) -> bool:
        """Remove an entry with neither holds nor waiters; return whether it was one."""
        entry, row = self.entries[name], MemoryRow(self, "", name)
        rules.tidy(row)
        for claim_id, (client, until) in list(entry.watchers.items()):
            if until <= row.now or not self.alive(client):
                del entry.watchers[claim_id]
        if entry.watchers or not row.idle():
            return False
        self.floor = max(self.floor, entry.token)
        del self.entries[name]
        return True

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
        if isinstance(request, Watch):
            return self._watched(client, request.claim)
        if isinstance(request, SetLifetime):
            row = MemoryRow(self, client, request.claim.name)
            return rules.set_lifetime(row, request.claim.id, request.lifetime)
        if isinstance(request, Convert):
            return rules.convert(MemoryRow(self, client, request.claim.name), request)
        if isinstance(request, Resize):
            return rules.resize(MemoryRow(self, client, request.name), request)
        if isinstance(request, CollectGarbage):
            return sum(self._remove_unused(name) for name in list(self.entries))
        raise TypeError(f"not a request of a lock table: {request!r}")

    def _inspect(self, request: Inspect) -> tuple[LockState, ...]:
        if request.name is not None:
            return (self._state(request.name),)
        names = [n for n in self.entries if fnmatch.fnmatchcase(n, request.pattern)]
        states = [self._state(name) for name in sorted(names)]
        return tuple(state for state in states if state.holds or state.waiting)

    def _watched(self, client: str, claim: Claim) -> Watched:
        row, state = MemoryRow(self, client, claim.name), self._state(claim.name)
        row.entry.watchers[claim.id] = (claim.client, row.now + WATCH_LASTS)
        for hold in state.holds:
            row.watch(hold.record.client)
        return Watched(state, rules.look_again(state))

    def _state(self, name: str) -> LockState:
        return rules.state(MemoryRow(self, "", name), name)


class MemoryRow:
    """One lock of a table, for one request of one client: a `rules.LockRow`."""

    def __init__(self, table: Table, client: str, name: str) -> None:
        self.table = table
        self.client = client
        self.now = table.now()
        self.entry = table.entries.get(name) or table.entry(name)
        self.local: list[str] = []

    @property
    def wall(self) -> float:
        """Unix time."""
        return self.table.micros() / 1e6

    @property
    def limit(self) -> int:
        """How many permits it has as a semaphore."""
        return self.entry.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        """Record it."""
        self.entry.limit = limit

    @property
    def doubt(self) -> float:
        """When the last grant began that was not confirmed."""
        return self.entry.doubt

    @doubt.setter
    def doubt(self, doubt: float) -> None:
        """Record it."""
        self.entry.doubt = doubt

    def holds(self) -> list[HoldRecord]:
        """The holds on record."""
        return list(self.entry.holds.values())

    def draw(self, count: int) -> int:
        """New tokens. The clock is a part of them, so they go on rising when the table is lost."""
        token = max(self.entry.token + 1, self.table.micros())
        self.entry.token = token + count - 1
        return token

    def put(self, hold: HoldRecord) -> None:
        """Record a hold. One with a new token is the last one."""
        holds = self.entry.holds
        known = holds.get(hold.id)
        if known is not None and known.token != hold.token:
            del holds[hold.id]
        holds[hold.id] = hold
        if self.entry.watchers and (known is None or known.token != hold.token):
            self._notify_watchers()

    def remove(self, hold_id: str) -> None:
        """Delete a hold."""
        del self.entry.holds[hold_id]
        if self.entry.watchers:
            self._notify_watchers()

    def _notify_watchers(self) -> None:
        watchers = self.entry.watchers
        for claim_id, (client, until) in list(watchers.items()):
            if until > self.now and self.alive(client):
                self.notify(claim_id, client)
            else:
                del watchers[claim_id]

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
        claims = reversed(self.queue())
        if claim_id in self.entry.queue:
            return itertools.islice(
                itertools.dropwhile(lambda c: c.id != claim_id, claims), 1, None
            )
        return claims

    def behind(self, claim_id: str) -> Claim | None:
        """The claim directly behind."""
        behind = None
        for claim in reversed(self.entry.queue.values()):
            if claim.id == claim_id:
                return behind
            behind = claim
        return None

    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue; one that is queued keeps its place."""
        queued = self.entry.queue.get(claim.id, claim)
        self.entry.queue[claim.id] = queued._replace(asked=self.now, limit=0)

    def quit(self, claim_id: str) -> bool:
        """Take out of the queue; return whether it was there."""
        return self.entry.queue.pop(claim_id, None) is not None

    def touch(self, client: str) -> None:
        """All queued claims of *client* have asked now."""
        queue = self.entry.queue
        for claim in self.queue():
            if claim.client == client:
                queue[claim.id] = claim._replace(asked=self.now)
        if all(claim.asked >= self.doubt for claim in queue.values()):
            self.doubt = 0.0

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

    def notify(self, claim_id: str, client: str) -> None:
        """Notify the client; the requesting one is notified by the reply."""
        if client == self.client:
            self.local.append(claim_id)
        else:
            self.table.notify(client, claim_id)

    def notified(self) -> tuple[str, ...]:
        """The ids of the notified claims that belong to the requesting client itself."""
        return tuple(self.local)


class SharedDatabase:
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


DATABASES: dict[tuple[int, str], SharedDatabase] = {}
DATABASES_MUTEX = threading.Lock()


def database_of(name: str, now: Callable[[], float]) -> SharedDatabase:
    """The database of that name in this very process."""
    with DATABASES_MUTEX:
        return DATABASES.setdefault((os.getpid(), name), SharedDatabase(now))


class Store:
    """The node of one client that carries out requests."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self.name = name
        self.now = now
        self.client = ""
        self.database = database_of(name, now)

    def enter(self, client: str) -> SimpleQueue[str | None]:
        """Register *client* as alive; return its messages."""
        self.client = client
        return self.database.messages.setdefault(client, SimpleQueue())

    def call(self, request: object, until: float) -> object:
        """Carry out one request. It takes no time worth a deadline."""
        database = self.database
        if isinstance(request, (Acquire, Watch)):
            client = request.claim.client
            with database.mutex:
                if client not in database.messages:
                    self.enter(client)
                self.client = client
                return database.table.answer(client, request)
        if type(request) in MAINTENANCE:
            return MAINTENANCE[type(request)]
        with database.mutex:
            return database.table.answer(self.client, request)

    def interrupt(self) -> None:
        """No call here lasts."""

    def close(self) -> None:
        """The client ends."""
        self.database.end(self.client)

    def after_fork(self) -> None:
        """Enter the room of the child."""
        global DATABASES_MUTEX
        DATABASES_MUTEX = threading.Lock()
        self.client = ""
        self.database = database_of(self.name, self.now)


class Listener:
    """The node of one client that waits for messages."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.messages: SimpleQueue[str | None] | None = None
        self.ended = False

    def call(self, request: object, until: float) -> object:
        """The next message."""
        if not isinstance(request, Listen):
            raise TypeError(f"not a request of a listener: {request!r}")
        with self.store.database.mutex:
            messages = self.messages = self.store.enter(request.client)
        request.interrupt.wakers.append(self._wake)
        try:
            # Checked after the callback is in place, so no interruption is missed.
            if self.ended:
                raise NotApplied("the client was closed")
            left = max(0.0, min(until - self.store.now(), LONGEST_WAIT))
            message = messages.get(timeout=0.0 if request.interrupt.is_set else left)
        except Empty:
            message = None
        finally:
            request.interrupt.remove(self._wake)
        return () if message is None else (message,)

    def _wake(self) -> None:
        if self.messages is not None:
            self.messages.put(None)

    def interrupt(self) -> None:
        """End the present call; refuse those to come until `close`."""
        self.ended = True
        self._wake()

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
