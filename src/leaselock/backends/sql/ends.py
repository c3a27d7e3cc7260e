"""Which connections that hold a lock have ended: seen as soon as the kernel knows.

All connections of one client are watched by one descriptor, for the end of what the server sends
and for nothing else, so the answers to questions wake nobody. Where the system has no epoll, an
end is noticed by the next question.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
from typing import TYPE_CHECKING, Any

from leaselock.core.backend import Listen
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_WAIT = 3600.0
# EPOLLIN and EPOLLRDHUP; the names are not there where epoll is not.
READABLE, ENDED = 0x001, 0x2000


class Deaf:
    """In place of an epoll, where the system has none: it hears of nothing but the one pipe."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.waiting = select.poll()
        self.waiting.register(pipe, select.POLLIN)

    def register(self, descriptor: int, events: int) -> None:
        """The others are not listened to."""

    def unregister(self, descriptor: int) -> None:
        """Nor need they be forgotten."""

    def poll(self, seconds: float) -> list[tuple[int, int]]:
        """Wait for the pipe."""
        return self.waiting.poll(seconds * 1000)

    def fileno(self) -> int:
        """What a loop may wait for."""
        return self.pipe

    def close(self) -> None:
        """The pipe is another's to close."""


class Watch:
    """The connections of one client."""

    def __init__(self) -> None:
        self.places: dict[int, Any] = {}
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        os.set_blocking(self.write, False)
        self.epoll: Any = select.epoll() if hasattr(select, "epoll") else Deaf(self.read)
        self.epoll.register(self.read, READABLE)

    def add(self, place: Any) -> None:
        """Watch a connection."""
        descriptor = place.line.fileno()
        self.places[descriptor] = place
        self.epoll.register(descriptor, ENDED)

    def remove(self, place: Any) -> None:
        """Watch it no more; it is about to be closed."""
        for descriptor, other in list(self.places.items()):
            if other is place:
                del self.places[descriptor]
                self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        # Of a descriptor that the client library has closed, the kernel has forgotten it already.
        with contextlib.suppress(OSError):
            self.epoll.unregister(descriptor)

    def poke(self) -> None:
        """End a wait."""
        try:
            os.write(self.write, b".")
        except BlockingIOError:
            return  # it has been poked often enough

    def ended(self, patience: float) -> tuple[str, ...] | None:
        """Wait; the holders whose connections have ended. None when nothing happened in time."""
        events = self.epoll.poll(patience if patience <= 0 else math.ceil(patience * 1000) / 1000)
        holders = []
        for descriptor, _ in events:
            if descriptor == self.read:
                os.read(self.read, 4096)
                continue
            place = self.places.pop(descriptor, None)
            if place is not None:
                self._forget(descriptor)
                place.ended = True
                if place.seat.token is not None and place.seat.claim is not None:
                    holders.append(place.seat.claim.id)
        return tuple(holders) if events else None

    def close(self) -> None:
        """Give everything back to the system."""
        self.epoll.close()
        os.close(self.read)
        os.close(self.write)


class Ends:
    """All clients of one node, asked by threads."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.begin()

    def begin(self) -> None:
        """Nothing is watched."""
        self.watches: dict[str, Watch] = {}
        self.finished = False

    def of(self, client: str) -> Watch:
        """The watch of a client."""
        watch = self.watches.get(client)
        return watch or self.watches.setdefault(client, Watch())

    def call(self, request: object, until: float) -> object:
        """Whose connections have ended, as soon as one has."""
        assert isinstance(request, Listen) or hasattr(request, "client")
        watch = self.of(request.client)
        if not isinstance(request, Listen):
            watch.poke()
            return None
        if self.finished:
            raise NotApplied("the client was closed")
        holders = watch.ended(self.left(until))
        if self.finished:
            raise NotApplied("the client was closed")
        if holders is None:
            raise OutcomeUnknown("nothing ended in time")
        return holders

    def left(self, until: float) -> float:
        """Seconds until then."""
        return min(LONGEST_WAIT, max(0.0, until - self.now()))

    def interrupt(self) -> None:
        """End the calls under way, and those to come until `close`."""
        self.finished = True
        for watch in list(self.watches.values()):
            watch.poke()

    def close(self) -> None:
        """Be ready for another life."""
        watches = self.watches
        self.begin()
        for watch in watches.values():
            watch.close()

    def after_fork(self) -> None:
        """The child watches nothing of the parent's."""
        self.close()
