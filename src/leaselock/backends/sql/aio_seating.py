"""The connections of the protocols "row" and "advisory", as tasks ask for them: one per claim.

A conversation is a task of its own, as in `aio`. Whoever leaves while its wait goes on closes its
connection, which ends the wait in the server too.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock.backends.sql.aio_lines import asked
from leaselock.backends.sql.ends import Ends, Watch
from leaselock.backends.sql.places import GRACE, Place, Places, once, refuse
from leaselock.backends.sql.script import NONSENSE, SqlError, senseless
from leaselock.backends.sql.seats import Await, By, Own, Seats, Shared
from leaselock.backends.sql.upkeep import refusal
from leaselock.core.backend import (
    Acquire,
    BreakLock,
    Claim,
    Inspect,
    Listen,
    Release,
    Released,
    Renew,
)
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leaselock.backends.sql.aio import AioStore
    from leaselock.backends.sql.script import Result
    from leaselock.backends.sql.seats import Steps
    from leaselock.core.backend import Busy, Grant

T = TypeVar("T")


class AioSeating(Places):
    """Carries out the requests of these protocols."""

    def __init__(self, store: AioStore, ends: AioEnds) -> None:
        super().__init__(store, ends)
        self.seats = Seats(store.dialect)

    def begin(self) -> None:
        """Nobody holds, waits or asks."""
        super().begin()
        # Who asks just now; and which of these claims have been given up meanwhile.
        self.asking: dict[str, asyncio.Event] = {}
        self.left: set[str] = set()

    async def call(self, by: object, until: float) -> object:
        """The answer of the database; Refused or Unknown when there is none by *until*."""
        assert isinstance(by, By)
        return await self.store.apart(self._call(by, until))

    async def _call(self, by: By, until: float) -> object:
        request = by.request
        if isinstance(request, Acquire):
            return await self._ask_once(by.protocol, request, until)
        if isinstance(request, Await):
            await self._await(request.claim, until)
            return None
        if isinstance(request, Release):
            return await self._leave(request.claim, until)
        if isinstance(request, Renew):
            lives = [self._lives(claim, until) for claim in request.claims]
            return tuple(await asyncio.gather(*lives))
        if isinstance(request, Inspect):
            return await self._drive(None, self.seats.inspect(by.protocol, request), until)
        assert isinstance(request, BreakLock)
        return await self._drive(None, self.seats.break_lock(by.protocol, request), until)

    async def _ask_once(self, protocol: str, request: Acquire, until: float) -> Grant | Busy:
        claim = request.claim
        done = self.asking[claim.id] = asyncio.Event()
        try:
            return await self._ask(protocol, request, until)
        finally:
            del self.asking[claim.id]
            done.set()
            if claim.id in self.left:
                self.left.discard(claim.id)
                self.drop(claim)

    async def _ask(self, protocol: str, request: Acquire, until: float) -> Grant | Busy:
        claim = request.claim
        place = self.places.get(claim.id)
        if place is None or place.ended:
            self.drop(claim)
            place = await self._place(claim, until)
            place.seat.claim, place.seat.protocol = claim, protocol
            self.places[claim.id] = place
        async with self._at(claim, place):
            refuse(self.store, protocol, place.settings)
            reply = await self._talk(claim, place, self.seats.ask(place.seat, request), until)
            if place.seat.token is None and not request.wait:
                self.lay_down(claim)
        return reply

    @contextlib.asynccontextmanager
    async def _at(self, claim: Claim, place: Place) -> AsyncIterator[None]:
        """One conversation; the connection is closed when it comes to no end."""
        try:
            async with place.mutex:
                self.check(claim, place)
                try:
                    yield
                except BaseException:
                    self.drop(claim)
                    raise
        finally:
            if place.gone:
                self.end(place)

    async def _talk(self, claim: Claim, place: Place, steps: Steps[T], until: float) -> T:
        answer = await self._drive(place, steps, until)
        self.check(claim, place)
        return answer

    async def _place(self, claim: Claim, until: float) -> Place:
        place = self.spare(claim)
        if place is not None:
            return place
        line = await self.store.connect(until)
        place = self.made(claim, line, asyncio.Lock())
        try:
            tenancy = self.seats.tenancy(self.store.target.session)
            place.settings = await self._drive(place, tenancy, until)
        except BaseException:
            self.store.drop(line)
            raise
        self.ends.of(claim.client).add(place)
        return place

    async def _await(self, claim: Claim, until: float) -> None:
        place = self.places.get(claim.id)
        if place is None:
            return
        patience = max(0.0, until - self.store.now())
        async with self._at(claim, place):
            await self._talk(claim, place, self.seats.wait(place.seat, patience), until + GRACE)

    async def _leave(self, claim: Claim, until: float) -> Released:
        asked = self.asking.get(claim.id)
        if asked is not None:
            # Its asker was cancelled; the question goes on, and is to leave nothing behind.
            self.left.add(claim.id)
            return await self._left(asked, until)
        place = self.places.get(claim.id)
        if place is None:
            return Released("absent", ())
        held = place.seat.token is not None
        if place.mutex.locked() and not held:
            # It is in the midst of a wait, whose asker is gone.
            self.drop(claim)
            return Released("waiting", ())
        try:
            async with self._at(claim, place):
                await self._talk(claim, place, self.seats.free(place.seat), until)
                self.lay_down(claim)
        except StoreError:
            # What is closed holds nothing; but nobody knows how long it did.
            return Released("absent", ())
        return Released("held" if held else "waiting", ())

    async def _left(self, asked: asyncio.Event, until: float) -> Released:
        try:
            async with asyncio.timeout(max(0.0, until - self.store.now())):
                await asked.wait()
        except TimeoutError:
            raise OutcomeUnknown("a question of the same claim is still under way") from None
        return Released("waiting", ())

    async def _lives(self, claim: Claim, until: float) -> bool:
        place = self.places.get(claim.id)
        if place is None or place.ended:
            return False
        try:
            async with self._at(claim, place):
                await self._talk(claim, place, self.seats.alive(), until)
        except OutcomeUnknown:
            return False
        return self.places.get(claim.id) is place

    async def _drive(self, place: Place | None, steps: Steps[T], until: float) -> T:
        dialect = self.store.dialect
        try:
            item = next(steps)
            while True:
                try:
                    if isinstance(item, Own):
                        assert place is not None
                        results = await asked(place.line, dialect, item.script, until)
                    else:
                        results = await self._shared(item, until)
                except SqlError as error:
                    item = steps.throw(error)
                else:
                    item = steps.send(results)
        except StopIteration as done:
            result: T = done.value
            return result
        except SqlError as error:
            raise refusal(error, self.store.greeted) from error
        except NONSENSE as error:
            raise senseless(place and place.line, error) from error

    async def _shared(self, item: Shared, until: float) -> list[Result]:
        results: list[Result] = await self.store.converse(lambda: once(item.script), until)
        return results

    def end(self, place: Place) -> None:
        """Close it."""
        self.store.drop(place.line)

    async def finish(self) -> None:
        """The store waits for what was asked, and ends the connections."""

    def retire(self) -> None:
        """The connections are the store's to close."""

    def close(self) -> None:
        """Begin anew."""
        self.begin()

    def after_fork(self) -> None:
        """Let go of the parent's; the connections are the store's to abandon."""
        self.begin()


class AioEnds:
    """Whose connections have ended, asked by tasks."""

    def __init__(self, now: Any) -> None:
        self.ends = Ends(now)

    def of(self, client: str) -> Watch:
        """The watch of a client."""
        return self.ends.of(client)

    async def call(self, request: object, until: float) -> object:
        """Whose connections have ended, as soon as one has."""
        if not isinstance(request, Listen):
            return self.ends.call(request, until)
        if self.ends.finished:
            raise NotApplied("the client was closed")
        loop = asyncio.get_running_loop()
        watch = self.of(request.client)
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = loop.call_later(self.ends.left(until), wake)
        loop.add_reader(watch.epoll.fileno(), wake)
        try:
            await woken
        finally:
            timer.cancel()
            loop.remove_reader(watch.epoll.fileno())
        return self.ends.call(request, 0.0)

    def interrupt(self) -> None:
        """End the calls under way, and those to come until `close`."""
        self.ends.interrupt()

    async def finish(self) -> None:
        """Nothing runs in the loop."""

    def retire(self) -> None:
        """Nothing ran in the loop."""

    def close(self) -> None:
        """Be ready for another life."""
        self.ends.close()

    def after_fork(self) -> None:
        """The child watches nothing of the parent's."""
        self.ends.after_fork()
