"""Requests to the store: a decision on one document, written if no other client was faster."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from leaselock._backends.document.adapter import Found, Get, List, Page, Put, Stored
from leaselock._backends.document.content import Content, encoded
from leaselock._backends.document.row import DocumentRow, RowContext
from leaselock._core.contract.effects import FOREVER, Call, Signal, Sleep, Spawn, Wait
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leaselock._backends.document.known import KnownDocuments
    from leaselock._core.contract.effects import Operation

T = TypeVar("T")
# After a conflict, who ends or keeps a hold comes back sooner than others: they wait for that.
URGENT = 0.1
# For how many seconds longer than others a document is kept whose holds were never released.
ABANDONED = 86400.0


class Batch(Generic[T]):
    """One request for each of many names, several of which are under way at the same time."""

    def __init__(self, ask: Callable[[str], Operation[T]], names: Iterable[str]) -> None:
        self.ask = ask
        self.names = list(names)
        self.open = len(self.names)
        self.answers: dict[str, T] = {}
        self.failure: StoreError | None = None
        self.done = Signal()

    async def work(self) -> None:
        """Ask about one name after the other, as long as there are any."""
        while self.names:
            name = self.names.pop()
            try:
                self.answers[name] = await self.ask(name)
            except StoreError as error:
                self.failure = error
            self.open -= 1
        if not self.open:
            self.done.set()


class Engine:
    """Reads, decides and writes for one client. *writer* is its id as a writer."""

    def __init__(
        self,
        store: Any,
        known: KnownDocuments,
        *,
        writer: str,
        random: Callable[[], float],
        token_ttl: float,
        parallel: int,
        watches: bool,
    ) -> None:
        self.store, self.known, self.now = store, known, known.now
        self.random, self.token_ttl = random, token_ttl
        self.parallel, self.watches = parallel, watches
        self.reset(writer)

    def reset(self, writer: str) -> None:
        """Be this writer. Each of its writes has an id of its own."""
        self.writer, self.writes = writer, 0

    async def apply(
        self,
        name: str,
        client: str,
        work: Callable[[DocumentRow], T],
        until: float,
        *,
        asker: str = "",
        newer_than: float = FOREVER,
        urgent: bool = False,
        shown: bool = False,
        outrun: T | None = None,
    ) -> T:
        """Carry out *work* on the document. If others change it until the time is over, the answer
        is *outrun*; NotApplied without one.

        A decision that writes may be made on any view, because the store compares versions. One
        that writes nothing is the answer only if the view is newer than *newer_than*, which nothing
        known is by default; otherwise the document is read, and the decision made again.
        """
        view = self.known.views.get(name)
        found = None if view is None else view.found
        fresh = view is not None and view.at > newer_than and not view.stale
        began, slowest = self.now(), 0.0
        conflicts = 0
        while True:
            if found is None:
                found, fresh = await self.read(name, until, asker), True
            content = self.known.decoded(name, found)
            row = DocumentRow(content, self.row_context(name, client, shown=shown))
            result = work(row)
            changed = row.changed()
            if changed is None:
                if fresh:
                    return result
                found = None
                continue
            found, done = await self.write(name, changed, found.version, until, asker)
            if done:
                return result
            conflicts, fresh = conflicts + 1, True
            slowest = max(slowest, self.now() - began)
            # A write without time for its reply would leave the claim in doubt.
            last = until if outrun is None else until - slowest
            if self.now() >= last:
                if outrun is not None:
                    return outrun
                raise NotApplied(f"other clients change the lock {name!r} all the time")
            if conflicts > 1:
                # The more often it was outrun, the sooner it asks again: new claims come later.
                pause = 2.0 * self.known.trip * self.random() / conflicts
                await Sleep(min(last, self.now() + pause * (URGENT if urgent else 1.0)))
                latest = self.known.views.get(name)
                if found is not None and latest is not None and not latest.stale:
                    found = latest.found  # newer, if a change was reported meanwhile
            began = self.now()

    async def read(self, name: str, until: float, asker: str) -> Found:
        """Read a document."""
        sent = self.now()
        found = await Call(self.store, Get(name), until)
        self.known.measure(sent, found.now)
        self.known.learn(name, found, sent, asker)
        return found

    async def write(
        self, name: str, content: Content, version: Any, until: float, asker: str
    ) -> tuple[Found | None, bool]:
        """Write, and return whether that was done; else what there is, if the store says so."""
        self.writes += 1
        content = content._replace(by=f"{self.writer}.{self.writes}")
        value, sent = encoded(content), self.now()
        reply = await Call(self.store, Put(name, value, version, self.unused_after(content)), until)
        if isinstance(reply, Stored):
            self.known.measure(sent, reply.now)
            found = Found(value, reply.version)
            # What this client has written lasts from before it was sent.
            self.known.take_in(name, found, content, sent, sent, asker)
            return found, True
        present = reply.found
        if present is None:
            return None, False
        self.known.measure(sent, present.now)
        self.known.learn(name, present, sent, asker)
        # A write that was repeated on its way finds itself.
        return present, present.value == value

    def row_context(self, name: str, client: str, *, shown: bool = False) -> RowContext:
        """What the rules need besides the document."""
        return self.known.row_context(name, client, watches=self.watches, shown=shown)

    def unused_after(self, content: Content) -> float | None:
        """From which Unix time on a document, as it is now, is not needed any more."""
        if not self.token_ttl:
            return None
        if content.idle:
            return content.at + self.token_ttl
        longest = max([max(held.lasts, held.free or 0.0) for held in content.holds], default=0.0)
        return content.at + longest + max(self.token_ttl, ABANDONED)

    async def together(
        self, ask: Callable[[str], Operation[T]], names: Iterable[str], until: float
    ) -> Batch[T]:
        """Ask about each name, about several at a time; what was answered before *until*."""
        batch = Batch(ask, names)
        with suppress(RuntimeError):  # no thread can be started: one after the other, then
            for _ in range(min(self.parallel, batch.open) - 1):
                await Spawn(batch.work(), "requests")
        await batch.work()
        if batch.open:
            await Wait(batch.done, until)
        return batch

    async def list(self, position: Any, until: float) -> tuple[Page, float]:
        """One page of all documents, and when it was asked for."""
        sent = self.now()
        return await Call(self.store, List(position), until), sent
