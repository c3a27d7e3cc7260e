"""A client's own life: its two files, the others it watches, the messages it hears.

It alone keeps its fifo open for writing, so whoever watches sees it hang up when the last
process that had it is gone: the client, or a child that inherited both files.
"""

from __future__ import annotations

import fcntl
import os
import select
import threading

from leaselock.backends.sqlite.clients import EVERYONE_SERIAL, OPEN, POKE, WORD, Clients
from leaselock.core.backend import WAKE_ALL
from leaselock.errors import NotApplied

MOST_WATCHED = 256
NOT_OPEN = -1


class Life:
    """One client, alive until `end` or until the kernel ends it."""

    def __init__(self, clients: Clients, client: str) -> None:
        self.clients = clients
        self.client = client
        self.ended = False
        self.mutex = threading.Lock()
        self.watched: dict[str, int] = {}
        clients.bury_the_dead()
        self.wake = self.live = NOT_OPEN
        try:
            self._make_fifo()
            self._make_lock()
        except BaseException:
            # What is half made would be in the way of the next try.
            self.end()
            raise

    def _make_fifo(self) -> None:
        path = self.clients.path(self.client, "wake")
        os.mkfifo(path, 0o600)
        # Readable and writable: so that it never hangs up while we live.
        self.wake = os.open(path, os.O_RDWR | OPEN)

    def _make_lock(self) -> None:
        # It gets its name only when it is locked: nobody can see it and find it free.
        path = self.clients.path(self.client, "new")
        self.live = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN, 0o600)
        fcntl.flock(self.live, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(path, self.clients.path(self.client, "live"))

    def watch(self, client: str) -> None:
        """Have `await_wakeup` say when *client* dies."""
        with self.mutex:
            if client in self.watched:
                return
            if len(self.watched) >= MOST_WATCHED:
                os.close(self.watched.pop(next(iter(self.watched))))
            try:
                fifo = os.open(self.clients.path(client, "wake"), os.O_RDONLY | OPEN)
            except FileNotFoundError:
                fifo = -1
            if fifo >= 0 and self.clients.alive(client):
                self.watched[client] = fifo
            elif fifo >= 0:
                os.close(fifo)
        if client in self.watched:
            os.write(self.wake, POKE)
        else:
            self.clients.notify(self.client, EVERYONE_SERIAL)

    def await_wakeup(self) -> tuple[str, ...]:
        """Wait for messages and deaths; which waiters should look again?"""
        while not self.ended:
            with self.mutex:
                watched = {fifo: client for client, fifo in self.watched.items()}
            poll = select.poll()
            poll.register(self.wake, select.POLLIN)
            for fifo in watched:
                poll.register(fifo, 0)  # hanging up is told without being asked for
            events = [fifo for fifo, _ in poll.poll()]
            dead = [watched[fifo] for fifo in events if fifo in watched]
            if heard := self._heard(self.wake in events, dead):
                return heard
        raise NotApplied("the client was closed")

    def _heard(self, called: bool, dead: list[str]) -> tuple[str, ...]:
        for client in dead:
            self._unwatch(client)
        words = os.read(self.wake, 8192 * WORD) if called else b""
        serials = [words[i : i + WORD] for i in range(0, len(words), WORD)]
        heard = [self._name(int.from_bytes(word, "big")) for word in serials if word != POKE]
        return (WAKE_ALL,) if dead else tuple(heard)

    def _name(self, serial: int) -> str:
        return WAKE_ALL if serial == EVERYONE_SERIAL else f"{self.client}:{serial}"

    def _unwatch(self, client: str) -> None:
        with self.mutex:
            fifo = self.watched.pop(client, None)
            if fifo is not None:
                os.close(fifo)

    def descriptors(self) -> tuple[int, ...]:
        """What a child process must inherit to keep this client alive."""
        return (self.live, self.wake)

    def interrupt(self) -> None:
        """Let `await_wakeup` end."""
        self.ended = True
        os.write(self.wake, POKE)

    def end(self) -> None:
        """Die in order: others see it at once."""
        self.clients.remove(self.client, "new")
        self.let_go()

    def let_go(self) -> None:
        """Close what is open, as a forked child must, without ending the parent's life."""
        for file in (self.live, self.wake, *self.watched.values()):
            if file != NOT_OPEN:
                os.close(file)
        self.watched = {}
