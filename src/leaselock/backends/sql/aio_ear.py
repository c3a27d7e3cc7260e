"""The ear of protocol "lease" for asyncio: the same words, heard by tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from leaselock.backends.sql.ear import CONNECT_PATIENCE, DOZE, POLL, Words, signed
from leaselock.backends.sql.script import SqlError
from leaselock.backends.sql.shelf import channel
from leaselock.backends.sql.upkeep import refusal
from leaselock.core.backend import WAKE_ALL, Listen
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from leaselock.backends.sql.aio import AioStore


class AioEar:
    """Hears which of the client's waiters have been handed their lock."""

    def __init__(self, store: AioStore) -> None:
        self.store = store
        self.begin()

    def begin(self) -> None:
        """Nothing is connected."""
        self.lines: dict[str, Any] = {}
        self.ended = False
        self.hearing: set[asyncio.Task[tuple[str, ...]]] = set()

    async def call(self, request: object, until: float) -> object:
        """The next words, however long they take."""
        if not isinstance(request, Listen):
            raise TypeError(f"the ear was asked {request!r}")
        if self.ended:
            raise NotApplied("the client was closed")
        client = request.client
        hearing = asyncio.ensure_future(self._hear(client, until))
        self.hearing.add(hearing)
        try:
            return await hearing
        except asyncio.CancelledError:
            self._let_go(client)
            if not self.ended:
                raise
            raise NotApplied("the client was closed") from None
        except SqlError as error:
            self._let_go(client)
            raise refusal(error, self.store.greeted) from error
        except StoreError:
            self._let_go(client)
            raise
        finally:
            self.hearing.discard(hearing)

    async def _hear(self, client: str, until: float) -> tuple[str, ...]:
        if client not in self.lines:
            await self._connect(client)
            return (WAKE_ALL,)
        while True:
            words = await self._words(client, until)
            if words:
                return words

    async def _connect(self, client: str) -> None:
        store = self.store
        until = store.now() + CONNECT_PATIENCE
        line = self.lines[client] = await store.connect(until)
        if not store.greeted.alone:
            store.drop(line)
            return
        if not store.dialect.rings:
            await line.run(line.listen(channel(client)), until)
        await store.drive(line, signed(store.greeted, client), until)

    async def _words(self, client: str, until: float) -> tuple[str, ...]:
        store, line = self.store, self.lines[client]
        patience = store.now() + CONNECT_PATIENCE
        if not store.greeted.alone:
            await asyncio.sleep(POLL)
            return await store.converse(Words(client).taken, patience)
        known = await store.drive(line, signed(store.greeted, client), patience)
        if store.dialect.rings:
            words = Words(client).dozing(DOZE if known else POLL)
            return await store.drive(line, words, patience)
        return tuple(await line.wait(until if known else store.now() + POLL))

    def _let_go(self, client: str) -> None:
        self.store.greeted.listening.discard(client)
        line = self.lines.pop(client, None)
        if line is not None:
            self.store.drop(line)

    def interrupt(self) -> None:
        """End the calls under way, and those to come until `close`."""
        self.ended = True
        for hearing in self.hearing:
            if not hearing.get_loop().is_closed():
                hearing.cancel()

    async def finish(self) -> None:
        """End the connections."""
        for client in list(self.lines):
            self._let_go(client)

    def retire(self) -> None:
        """The lines are the store's to let go."""
        self.lines = {}
        self.hearing = set()
        self.store.greeted.listening.clear()

    def close(self) -> None:
        """Be ready for another life."""
        self.begin()

    def after_fork(self) -> None:
        """The child hears nothing of the parent's."""
        self.retire()
        self.begin()
