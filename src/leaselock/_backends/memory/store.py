"""The memory store: locks within this process, shared by all clients of the same URL.

Nothing leaves the process, so nothing survives it; a forked child starts with an empty store.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from leaselock._backends import Opened, StoreType
from leaselock._backends.url import decoded, parse
from leaselock._core.contract.backend import (
    ALL_MODES,
    WAKE_ALL,
    WATCH_LASTS,
    Acquire,
    Capabilities,
    Claim,
    Collected,
    CollectGarbage,
    Doctor,
    Finding,
    Listen,
    Setup,
    Watch,
)
from leaselock._core.contract.lifecycle import BlockingNode
from leaselock._core.rows import rules
from leaselock._core.rows.entry_row import Entry, EntryRow
from leaselock._core.rows.queue import NodeBackend
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable

CAPABILITIES = Capabilities(
    clock_drift=0.0,
    clock_margin=0.0,
    detects_death=True,
    inheritable=False,
    min_hold=True,
    modes=ALL_MODES,
    notifies_changes=True,
)
# There is nothing to configure or to create.
MAINTENANCE: dict[type, object] = {
    Doctor: (Finding("ok", "the memory of this process"),),
    Setup: (),
}
# Seconds: longer than a request can be in flight.
TOMBSTONE_TTL = 120.0
# From this many names on, each new one makes the table look at as many others, and remove
# those that are not in use.
MOST_KEPT, LOOKS = 1000, 2
LONGEST_WAIT = 3600.0


class Table:
    """All locks of one store. It reads no clock and knows no processes: both are handed in."""

    def __init__(
        self,
        now: Callable[[], float],
        micros: Callable[[], int],
        alive: Callable[[str], bool],
        notify: Callable[[str, str], None],
        observe_client: Callable[[str, str], None],
    ) -> None:
        self.now = now
        self.micros = micros
        self.alive = alive
        self.notify = notify
        self.observe_client = observe_client
        # Whether the process of a client lives whose holds others have inherited. The model of a
        # file knows; in memory no other process has them.
        self.process_lives: Callable[[str], bool] = lambda client: False
        self.entries: dict[str, Entry] = {}
        self.tombstones: dict[str, float] = {}
        # The greatest token of the entries that were removed: later ones are greater.
        self.floor = 0
        # Which client sent the request in progress.
        self.client = ""

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
        if type(request) is CollectGarbage:
            return Collected(sum(self._remove_unused(name) for name in list(self.entries)))
        self.client = client
        return rules.answer(self._row, request, self._names)

    def _row(self, name: str) -> MemoryRow:
        return MemoryRow(self, self.client, name)

    def _names(self) -> list[str]:
        return list(self.entries)


class MemoryRow(EntryRow):
    """One lock of a table, for one request of one client."""

    def __init__(self, table: Table, client: str, name: str) -> None:
        self.table = table
        self.client = client
        self.now = table.now()
        self.micros = table.micros
        self.entry = table.entries.get(name) or table.entry(name)
        self.local: list[str] = []

    def observe(self, claim: Claim) -> bool:
        """Notify the claim when a hold begins or ends."""
        self.entry.watchers[claim.id] = (claim.client, self.now + WATCH_LASTS)
        return True

    def notify_watchers(self) -> None:
        """A hold has begun or ended."""
        watchers = self.entry.watchers
        for claim_id, (client, until) in list(watchers.items()):
            if until > self.now and self.alive(client):
                self.notify(claim_id, client)
            else:
                del watchers[claim_id]

    def alive(self, client: str) -> bool:
        """Whether the client is alive; the requesting one is."""
        return client == self.client or self.table.alive(client)

    def process_lives(self, client: str) -> bool:
        """Whether the process lives that renews the holds of the client."""
        return self.table.process_lives(client)

    def has_tombstone(self, claim_id: str) -> bool:
        """Whether the claim is refused for good."""
        return self.table.tombstones.get(claim_id, 0.0) > self.now

    def tombstone(self, claim_id: str) -> None:
        """Refuse the claim from now on."""
        tombstones = self.table.tombstones
        while tombstones and (oldest := next(iter(tombstones))) and tombstones[oldest] <= self.now:
            del tombstones[oldest]
        tombstones.pop(claim_id, None)  # the dict is in the order of their ends
        tombstones[claim_id] = self.now + TOMBSTONE_TTL

    def observe_client(self, client: str) -> None:
        """Notify the requesting client when *client* dies."""
        if client != self.client:
            self.table.observe_client(self.client, client)

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
        self.table = Table(
            now, _micros, self.messages.__contains__, self._notify, self._observe_client
        )

    def _notify(self, client: str, claim_id: str) -> None:
        messages = self.messages.get(client)
        if messages is not None:  # otherwise the client has died
            messages.put(claim_id)

    def _observe_client(self, client: str, other: str) -> None:
        """All clients are notified of every death, so there is nothing to remember."""

    def end(self, client: str) -> None:
        """The client has died: every waiter looks again."""
        with self.mutex:
            self.messages.pop(client, None)
            for messages in self.messages.values():
                messages.put(WAKE_ALL)


def _micros() -> int:
    return time.time_ns() // 1000


# By process and name. The clients of a database keep it, and a hold that outlives them does.
DATABASES = WeakValueDictionary[tuple[int, str], SharedDatabase]()
IN_USE: dict[tuple[int, str], SharedDatabase] = {}
DATABASES_MUTEX = threading.Lock()
# The greatest token of the databases that are gone: later ones are greater.
_floor = 0


def database_of(name: str, now: Callable[[], float]) -> SharedDatabase:
    """The database of that name in this very process."""
    with DATABASES_MUTEX:
        found = DATABASES.get((os.getpid(), name))
        if found is None:
            found = DATABASES[os.getpid(), name] = SharedDatabase(now)
            found.table.floor = _floor
        return found


def keep_if_in_use(name: str, database: SharedDatabase) -> None:
    """Keep a database without clients for as long as it has a hold."""
    global _floor
    key = (os.getpid(), name)
    with DATABASES_MUTEX, database.mutex:
        database.table.answer("", CollectGarbage(None))
        _floor = max(_floor, database.table.floor)
        if database.table.entries:
            IN_USE[key] = database
        else:
            IN_USE.pop(key, None)


class Store(BlockingNode):
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

    def close(self) -> None:
        """The client ends."""
        self.database.end(self.client)
        keep_if_in_use(self.name, self.database)

    def after_fork(self) -> None:
        """Enter the room of the child."""
        global DATABASES_MUTEX
        DATABASES_MUTEX = threading.Lock()
        for key in [key for key in IN_USE if key[0] != os.getpid()]:
            del IN_USE[key]
        self.client = ""
        self.database = database_of(self.name, self.now)


class Listener(BlockingNode):
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
        wake = request.interrupt.add(self._wake)
        try:
            # Checked after the callback is in place, so no interruption is missed.
            if self.ended:
                raise NotApplied("the client was closed")
            remaining = max(0.0, min(until - self.store.now(), LONGEST_WAIT))
            message = messages.get(timeout=0.0 if request.interrupt.is_set else remaining)
        except Empty:
            message = None
        finally:
            request.interrupt.remove(wake)
        return () if message is None else (message,)

    def _wake(self) -> None:
        if self.messages is not None:
            self.messages.put(None)

    def wake(self) -> None:
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
    default = STORE.protocol_of(parts)
    store = Store(decoded(parts.authority + parts.path), now)
    listener = Listener(store)

    def backend(protocol: str | None) -> NodeBackend:
        STORE.check_protocol(protocol)
        return NodeBackend(CAPABILITIES, store, listener)

    return Opened(backend, default, url, parts=(store, listener))


STORE = StoreType("memory", {"queue": CAPABILITIES}, open_store)
