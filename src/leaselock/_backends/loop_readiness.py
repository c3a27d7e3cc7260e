"""`add_reader` and `add_writer` for event loops that lack them: the default ones of Windows.

One thread for each loop waits for its sockets with `select`. A socket that is ready is not waited
for again until its callback has run, as in a loop that has these methods.
"""

from __future__ import annotations

import asyncio
import select
import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# A descriptor, and whether it is to be written.
Interest = tuple[int, bool]
# Seconds until the thread looks whether its loop has been closed.
LOOK_INTERVAL = 1.0


class Watcher(Protocol):
    """The methods of an event loop that wait for descriptors."""

    def add_reader(self, fd: int, callback: Callable[..., object], /, *args: object) -> object:
        """Call back whenever the descriptor can be read."""

    def add_writer(self, fd: int, callback: Callable[..., object], /, *args: object) -> object:
        """Call back whenever the descriptor can be written."""

    def remove_reader(self, fd: int, /) -> object:
        """Stop that."""

    def remove_writer(self, fd: int, /) -> object:
        """Stop that."""


class SelectorThread:
    """Waits for the sockets of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.mutex = threading.Lock()
        self.callbacks: dict[Interest, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self.paused: set[Interest] = set()
        self.reader, self.writer = socket.socketpair()
        self.writer.setblocking(False)
        threading.Thread(target=self._work, name="leaselock-selector", daemon=True).start()

    def add_reader(self, fd: int, callback: Callable[..., object], /, *args: object) -> None:
        """Call back whenever the descriptor can be read."""
        self._set((fd, False), (callback, args))

    def add_writer(self, fd: int, callback: Callable[..., object], /, *args: object) -> None:
        """Call back whenever the descriptor can be written."""
        self._set((fd, True), (callback, args))

    def remove_reader(self, fd: int, /) -> None:
        """Stop that."""
        self._set((fd, False), None)

    def remove_writer(self, fd: int, /) -> None:
        """Stop that."""
        self._set((fd, True), None)

    def _set(
        self,
        interest: Interest,
        callback: tuple[Callable[..., object], tuple[object, ...]] | None,
    ) -> None:
        with self.mutex:
            self.paused.discard(interest)
            if callback is None:
                self.callbacks.pop(interest, None)
            else:
                self.callbacks[interest] = callback
        self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # full of earlier ones
            self.writer.send(b".")

    def _work(self) -> None:
        while not self.loop.is_closed():
            self._wait_once()
        _THREADS.pop(self.loop, None)
        self.reader.close()
        self.writer.close()

    def _wait_once(self) -> None:
        with self.mutex:
            interests = [each for each in self.callbacks if each not in self.paused]
        own = self.reader.fileno()
        reading = [own, *(fd for fd, writes in interests if not writes)]
        writing = [fd for fd, writes in interests if writes]
        try:
            # Windows reports a connection that was refused as exceptional.
            readable, writable, failed = select.select(reading, writing, writing, LOOK_INTERVAL)
        except (OSError, ValueError):  # one of them was closed, and is removed by its user
            return
        if own in readable:
            self.reader.recv(4096)
        ready = {(fd, False) for fd in readable if fd != own}
        ready |= {(fd, True) for fd in (*writable, *failed)}
        with self.mutex:
            self.paused |= ready & self.callbacks.keys()
        with suppress(RuntimeError):  # the loop was closed
            for interest in ready:
                self.loop.call_soon_threadsafe(self._call_back, interest)

    def _call_back(self, interest: Interest) -> None:
        with self.mutex:
            callback = self.callbacks.get(interest) if interest in self.paused else None
        if callback is None:
            return
        try:
            callback[0](*callback[1])
        finally:
            with self.mutex:
                self.paused.discard(interest)
            self._wake()


# Of the loops that are not closed.
_THREADS: dict[asyncio.AbstractEventLoop, SelectorThread] = {}


def watcher_of(loop: asyncio.AbstractEventLoop) -> Watcher:
    """Return the loop itself, or the thread that waits for its sockets."""
    if sys.platform == "win32" and isinstance(loop, asyncio.ProactorEventLoop):
        return _thread_of(loop)
    return loop


def _thread_of(loop: asyncio.AbstractEventLoop) -> SelectorThread:
    thread = _THREADS.get(loop)
    if thread is None:
        thread = _THREADS[loop] = SelectorThread(loop)
    return thread
