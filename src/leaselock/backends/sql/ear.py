"""The ear of protocol "lease": which of the client's waiters have been handed their lock.

    PostgreSQL      a connection that listens: the transaction that hands over also notifies
    MySQL, MariaDB  a connection that sleeps; whoever hands over leaves a word, and ends the sleep
    behind a proxy  no connection of its own: it looks for words, several times a second

What is heard first is that everyone should look, for nobody knows what was said before.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from leaselock.backends.sql.script import SqlError
from leaselock.backends.sql.shelf import channel
from leaselock.backends.sql.upkeep import refusal
from leaselock.core.backend import WAKE_ALL, Listen
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from leaselock.backends.sql.nodes import Store
    from leaselock.backends.sql.script import Steps
    from leaselock.backends.sql.upkeep import Greeted

# How often a waiter behind a proxy looks, in seconds; and how long MySQL's ear sleeps unrung.
POLL = 0.1
DOZE = 1.0
CONNECT_PATIENCE = 10.0
# A statement was ended by `KILL QUERY`, or by a time limit of the server's (MariaDB's, MySQL's).
RUNG = frozenset(("1317", "1969", "3024"))


class Words:
    """What was left for a client, for it to take away."""

    def __init__(self, client: str) -> None:
        self.client = client

    def taken(self) -> Steps[tuple[str, ...]]:
        """Read it and remove it."""
        (found,) = yield (("words", {"client": self.client}),)
        holders = tuple(row[0] for row in found.rows)
        if holders:
            yield tuple(("forget word", {"client": self.client, "holder": h}) for h in holders)
        return holders

    def dozing(self, seconds: float) -> Steps[tuple[str, ...]]:
        """Sleep until there is something, or somebody rings, or the time is over. The bell of a
        second one may end what follows the sleep: then that is done in the next turn.
        """
        yield from self._unless_rung(self._dozed(seconds))
        return (yield from self._unless_rung(self.taken()))

    def _dozed(self, seconds: float) -> Steps[tuple[str, ...]]:
        yield (("doze", {"client": self.client, "millis": round(seconds * 1000)}),)
        return ()

    def _unless_rung(self, steps: Steps[tuple[str, ...]]) -> Steps[tuple[str, ...]]:
        try:
            return (yield from steps)
        except SqlError as error:
            if error.state not in RUNG:
                raise
            return ()


class Ear:
    """Hears which of the client's waiters have been handed their lock."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.begin()

    def begin(self) -> None:
        """Nothing is connected."""
        self.lines: dict[str, Any] = {}
        self.ended = threading.Event()

    def call(self, request: object, until: float) -> object:
        """The next words, however long they take."""
        if not isinstance(request, Listen):
            raise TypeError(f"the ear was asked {request!r}")
        try:
            return self._hear(request.client, until)
        except (StoreError, SqlError) as error:
            self._let_go(request.client)
            if self.ended.is_set():
                raise NotApplied("the client was closed") from None
            if isinstance(error, SqlError):
                raise refusal(error, self.store.greeted) from error
            raise

    def _hear(self, client: str, until: float) -> tuple[str, ...]:
        if client not in self.lines:
            self._connect(client)
            return (WAKE_ALL,)
        while not self.ended.is_set():
            words = self._words(client, until)
            if words:
                return words
        raise NotApplied("the client was closed")

    def _connect(self, client: str) -> None:
        store = self.store
        until = store.now() + CONNECT_PATIENCE
        line = self.lines[client] = store.connect(until)
        if not store.greeted.alone:
            line.close()
            return
        if not store.dialect.rings:
            line.run(line.listen(channel(client)), until)
        store.drive(line, signed(store.greeted, client), until)

    def _words(self, client: str, until: float) -> tuple[str, ...]:
        store, line = self.store, self.lines[client]
        if not store.greeted.alone:
            self.ended.wait(POLL)
            return self._looked(Words(client))
        patience = store.now() + CONNECT_PATIENCE
        known = store.drive(line, signed(store.greeted, client), patience)
        if store.dialect.rings:
            return store.drive(line, Words(client).dozing(DOZE if known else POLL), patience)
        return tuple(line.wait(until if known else store.now() + POLL))

    def _looked(self, words: Words) -> tuple[str, ...]:
        if self.ended.is_set():
            return ()
        return self.store.converse(words.taken, self.store.now() + CONNECT_PATIENCE)

    def _let_go(self, client: str) -> None:
        self.store.greeted.listening.discard(client)
        line = self.lines.pop(client, None)
        if line is not None:
            line.close()

    def interrupt(self) -> None:
        """End the calls under way, and those to come until `close`."""
        self.ended.set()
        for line in list(self.lines.values()):
            if not line.broken:
                line.cut()

    def close(self) -> None:
        """Be ready for another life."""
        for client in list(self.lines):
            self._let_go(client)
        self.begin()

    def after_fork(self) -> None:
        """The child hears nothing of the parent's."""
        self.store.greeted.listening.clear()
        for line in self.lines.values():
            line.abandon()
        self.begin()


def signed(greeted: Greeted, client: str) -> Steps[bool]:
    """Show that the client hears, for as long as this line lasts; whether that could be done.

    If it could not, it is to be tried again: the server may not have noticed yet that the
    connection before this one has ended.
    """
    if client not in greeted.listening:
        (result,) = yield (("sign", {"sign": greeted.sign(client)}),)
        if not result.rows[0][0]:
            return False
        greeted.listening.add(client)
    return True
