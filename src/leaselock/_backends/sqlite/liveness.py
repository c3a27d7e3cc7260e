"""The locked file of the own client, the clients that it observes, and the messages it receives.

A client is alive while a process has its file locked: the client's, or a child that inherited it.
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
from leaselock._core.contract.backend import WAKE_ALL

MOST_OBSERVED = 256
NOT_OPEN = -1


class Liveness:
    """One client, alive until `end` or until its process dies."""

    def __init__(self, registry: ClientRegistry, client: str) -> None:
        self.registry = registry
        self.client = client
        self.mutex = threading.Lock()
        self.observed: dict[str, kernel.Peer] = {}
        registry.remove_dead()
        self.live = self.own = NOT_OPEN
        self.mailbox = kernel.Mailbox(registry.path(client, "wake"))
        try:
            self._lock_file()
        except BaseException:
            # Incomplete files would make the next attempt fail.
            self.end()
            raise

    def _lock_file(self) -> None:
        # It gets its final name when it is locked, so no client can find it unlocked.
        path = self.registry.path(self.client, "new")
        self.live = kernel.create_locked(path)
        os.write(self.live, self.mailbox.address)
        kernel.rename(path, self.registry.path(self.client, "live"))

    def lock_own(self) -> None:
        """Make this process known as the one that renews: others will inherit the client's life."""
        if self.own == NOT_OPEN:
            self.own = kernel.create_locked(self.registry.path(self.client, "own"))

    def observe_client(self, client: str) -> None:
        """Make `await_wakeup` return when *client* dies."""
        with self.mutex:
            if client in self.observed:
                return
            if len(self.observed) >= MOST_OBSERVED:
                self.observed.pop(next(iter(self.observed))).close()
            path = self.registry.path
            peer = kernel.observe(path(client, "live"), path(client, "wake"))
            if peer is not None and self.registry.alive(client):
                self.observed[client] = peer
            elif peer is not None:
                peer.close()
        if client in self.observed:
            self.interrupt()
        else:
            self.registry.notify(self.client, WAKE_ALL_NUMBER)

    def await_wakeup(self, seconds: float) -> tuple[str, ...]:
        """Wait for messages and deaths; return the claims that should ask again.

        Nothing after *seconds*, and when the wait was interrupted.
        """
        with self.mutex:
            clients = {peer: client for client, peer in self.observed.items()}
        readable, dead = self.mailbox.wait(clients, seconds)
        return self._received(readable, [clients[peer] for peer in dead])

    def _received(self, readable: bool, dead: list[str]) -> tuple[str, ...]:
        for client in dead:
            self._stop_observing(client)
        data = self.mailbox.read(8192 * MESSAGE_SIZE) if readable else b""
        messages = [data[i : i + MESSAGE_SIZE] for i in range(0, len(data), MESSAGE_SIZE)]
        numbers = [int.from_bytes(one, "big") for one in messages if one != NO_MESSAGE]
        return (WAKE_ALL,) if dead else tuple(map(self._claim, numbers))

    def _claim(self, number: int) -> str:
        return WAKE_ALL if number == WAKE_ALL_NUMBER else f"{self.client}:{number}"

    def _stop_observing(self, client: str) -> None:
        with self.mutex:
            peer = self.observed.pop(client, None)
            if peer is not None:
                peer.close()

    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a child process must inherit to keep this client alive."""
        return (self.live, *self.mailbox.descriptors())

    def interrupt(self) -> None:
        """Make `await_wakeup` end."""
        with suppress(BlockingIOError):  # there is no room, so it ends anyway
            self.mailbox.put(NO_MESSAGE)

    def end(self) -> None:
        """End the client in order; other clients detect it at once."""
        self.registry.remove(self.client, "new")
        self.close_descriptors()

    def close_descriptors(self) -> None:
        """Close all descriptors. A forked child does that without ending its parent's client."""
        for file in (self.live, self.own):
            if file != NOT_OPEN:
                os.close(file)
        self.mailbox.close()
        for peer in self.observed.values():
            peer.close()
        self.observed = {}
