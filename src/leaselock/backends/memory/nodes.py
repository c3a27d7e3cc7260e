"""The memory store: rooms of this process, shared by all clients that name the same one.

Nothing leaves the process, so nothing survives it, and a forked child starts with empty rooms.
"""

from __future__ import annotations

import os
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING

from leaselock.backends import Opened, check_protocol, default_protocol
from leaselock.backends.url import decoded, parse
from leaselock.core.backend import (
    Acquire,
    Capabilities,
    CollectGarbage,
    Doctor,
    Finding,
    Listen,
    Setup,
)
from leaselock.core.queue import Queue
from leaselock.core.table import Table
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
# Nothing has to be made or cleared away, and nothing can be set up wrongly.
HOUSEKEEPING: dict[type, object] = {
    Doctor: (Finding("ok", "the memory of this process"),),
    Setup: (),
    CollectGarbage: 0,
}


class Room:
    """One store: a table, and the ears of the clients in it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.mutex = threading.Lock()
        self.ears: dict[str, SimpleQueue[str | None]] = {}
        self.table = Table(now, _micros, self.ears.__contains__, self._notify, self._watch)

    def _notify(self, client: str, holder: str) -> None:
        ear = self.ears.get(client)
        if ear is not None:  # else it has died, and its place in the queue is passed over
            ear.put(holder)

    def _watch(self, client: str, watched: str) -> None:
        """A client's end is told to everyone, so there is nothing to remember."""

    def end(self, client: str) -> None:
        """The client is gone; whoever waits looks again."""
        with self.mutex:
            self.ears.pop(client, None)
            for ear in self.ears.values():
                ear.put("")


def _micros() -> int:
    return time.time_ns() // 1000


ROOMS: dict[tuple[int, str], Room] = {}
ROOMS_MUTEX = threading.Lock()


def room_of(name: str, now: Callable[[], float]) -> Room:
    """The room of that name in this very process."""
    with ROOMS_MUTEX:
        return ROOMS.setdefault((os.getpid(), name), Room(now))


class Store:
    """A client's way to a room."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self.name = name
        self.now = now
        self.client = ""
        self.room = room_of(name, now)

    def enter(self, client: str) -> SimpleQueue[str | None]:
        """Come alive as *client*."""
        self.client = client
        return self.room.ears.setdefault(client, SimpleQueue())

    def call(self, request: object, until: float) -> object:
        """Carry out one request; it takes no time worth a deadline."""
        if type(request) in HOUSEKEEPING:
            return HOUSEKEEPING[type(request)]
        with self.room.mutex:
            if isinstance(request, Acquire):
                self.enter(request.claim.client)
            return self.room.table.answer(self.client, request)

    def interrupt(self) -> None:
        """No call here lasts."""

    def close(self) -> None:
        """End the client's life in the room."""
        self.room.end(self.client)

    def after_fork(self) -> None:
        """Go to the child's own room."""
        global ROOMS_MUTEX
        ROOMS_MUTEX = threading.Lock()
        self.client = ""
        self.room = room_of(self.name, self.now)


class Ear:
    """Hears what others in the room did."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.heard: SimpleQueue[str | None] | None = None
        self.ended = False

    def call(self, request: object, until: float) -> object:
        """The next message, for as long as it takes."""
        if not isinstance(request, Listen):
            raise TypeError(f"the ear was asked {request!r}")
        with self.store.room.mutex:
            self.heard = self.store.enter(request.client)
        # Interrupted before it began, a call must not begin to wait.
        message = None if self.ended else self.heard.get()
        if message is None:
            raise NotApplied("the client was closed")
        return (message,)

    def interrupt(self) -> None:
        """End the call under way, and those to come until `close`."""
        self.ended = True
        if self.heard is not None:
            self.heard.put(None)

    def close(self) -> None:
        """Be ready for another life."""
        self.heard = None
        self.ended = False

    def after_fork(self) -> None:
        """The child hears nothing of the parent's."""
        self.close()


def open_store(url: str, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The room that ``memory://room`` names."""
    parts = parse(url)
    default = default_protocol(parts, PROTOCOLS, "memory")
    store = Store(decoded(parts.authority + parts.path), now)

    def backend(protocol: str | None) -> Queue:
        check_protocol(protocol, PROTOCOLS, "memory")
        return Queue(CAPABILITIES)

    return Opened(backend, default, {"store": store, "ear": Ear(store)}, url)
