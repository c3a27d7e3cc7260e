"""The files of the own client, the clients that it observes, and the messages that it receives.

Only the client keeps its fifo open for writing. A client that observes it gets a hang-up event when
the last process that had the fifo open is gone: the client, or a child that inherited both files.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from leaselock._backends.sqlite import kernel
from leaselock._backends.sqlite.client_registry import (
    MESSAGE_SIZE,
    NO_MESSAGE,
    WAKE_ALL_NUMBER,
    ClientRegistry,
)
from leaselock._backends.sqlite.kernel import OPEN
from leaselock._core.backend import WAKE_ALL

MOST_OBSERVED = 256
NOT_OPEN = -1


class Liveness:
    """One client, alive until `end` or until its process dies."""

    def __init__(self, registry: ClientRegistry, client: str) -> None:
        self.registry = registry
        self.client = client
        self.mutex = threading.Lock()
        self.observed: dict[str, int] = {}
        registry.remove_dead()
        self.wake = self.live = NOT_OPEN
        try:
            self._make_fifo()
            self._make_lock()
        except BaseException:
            # Incomplete files would make the next attempt fail.
            self.end()
            raise

    def _make_fifo(self) -> None:
        path = self.registry.path(self.client, "wake")
        self.wake = kernel.make_fifo(path)

    def _make_lock(self) -> None:
        # It gets its final name when it is locked, so no client can find it unlocked.
        path = self.registry.path(self.client, "new")
        self.live = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN, 0o600)
        kernel.lock(self.live)
        os.rename(path, self.registry.path(self.client, "live"))

    def observe_client(self, client: str) -> None:
        """Make `await_wakeup` return when *client* dies."""
        with self.mutex:
            if client in self.observed:
                return
            if len(self.observed) >= MOST_OBSERVED:
                os.close(self.observed.pop(next(iter(self.observed))))
            try:
                fifo = os.open(self.registry.path(client, "wake"), os.O_RDONLY | OPEN)
            except FileNotFoundError:
                fifo = -1
            if fifo >= 0 and self.registry.alive(client):
                self.observed[client] = fifo
            elif fifo >= 0:
                os.close(fifo)
        if client in self.observed:
            os.write(self.wake, NO_MESSAGE)
        else:
            self.registry.notify(self.client, WAKE_ALL_NUMBER)

    def await_wakeup(self, seconds: float) -> tuple[str, ...]:
        """Wait for messages and deaths; return the claims that should ask again.

        None after *seconds*, and when the wait was interrupted.
        """
        with self.mutex:
            clients = {fifo: client for client, fifo in self.observed.items()}
        events = kernel.wait(self.wake, clients, seconds)
        dead = [clients[fifo] for fifo in events if fifo in clients]
        return self._received(self.wake in events, dead)

    def _received(self, readable: bool, dead: list[str]) -> tuple[str, ...]:
        for client in dead:
            self._stop_observing(client)
        data = os.read(self.wake, 8192 * MESSAGE_SIZE) if readable else b""
        messages = [data[i : i + MESSAGE_SIZE] for i in range(0, len(data), MESSAGE_SIZE)]
        numbers = [int.from_bytes(one, "big") for one in messages if one != NO_MESSAGE]
        return (WAKE_ALL,) if dead else tuple(map(self._claim, numbers))

    def _claim(self, number: int) -> str:
        return WAKE_ALL if number == WAKE_ALL_NUMBER else f"{self.client}:{number}"

    def _stop_observing(self, client: str) -> None:
        with self.mutex:
            fifo = self.observed.pop(client, None)
            if fifo is not None:
                os.close(fifo)

    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a child process must inherit to keep this client alive."""
        return (self.live, self.wake)

    def interrupt(self) -> None:
        """Make `await_wakeup` end."""
        with suppress(BlockingIOError):  # the fifo is full, so it ends anyway
            os.write(self.wake, NO_MESSAGE)

    def end(self) -> None:
        """End the client in order; other clients detect it at once."""
        self.registry.remove(self.client, "new")
        self.close_descriptors()

    def close_descriptors(self) -> None:
        """Close all descriptors. A forked child does that without ending its parent's client."""
        for file in (self.live, self.wake, *self.observed.values()):
            if file != NOT_OPEN:
                os.close(file)
        self.observed = {}
