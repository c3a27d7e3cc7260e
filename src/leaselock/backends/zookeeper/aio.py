"""ZooKeeper as tasks ask it: kazoo's answers are handed over to the loop, no thread waits.

What cannot be handed over, because the loop was closed meanwhile, is nobody's any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from leaselock.backends.zookeeper.nodes import Store, landing
from leaselock.backends.zookeeper.requests import Flight, Poke
from leaselock.backends.zookeeper.upkeep import UPKEEP
from leaselock.core.backend import Listen
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.zookeeper.flights import InTheAir

Loop = asyncio.AbstractEventLoop
A_DAY = 86400.0


def hand_over(loop: Loop, function: Callable[..., None], *arguments: object) -> None:
    """Call in the loop, from any thread."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


def settle(future: asyncio.Future[Any], result: object = None) -> None:
    """Answer whoever still waits."""
    if not future.done():
        future.set_result(result)


class AioStore:
    """The session, asked by tasks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.session = store.session

    async def call(self, request: object, until: float) -> object:
        """The answers of a flight, or what upkeep finds."""
        if isinstance(request, UPKEEP):
            return await asyncio.to_thread(self.store.call, request, until)
        assert isinstance(request, Flight)
        session, loop = self.session, asyncio.get_running_loop()
        client = await self._connected(until)
        answer: asyncio.Future[InTheAir] = loop.create_future()
        session.launch(client, request, lambda air: hand_over(loop, settle, answer, air))
        if not await self._soon(answer, until):
            raise OutcomeUnknown(f"no answer of {session.target.shown} in time")
        return landing(session, answer.result())

    async def _connected(self, until: float) -> Any:
        client = self.session.start()
        while not client.connected:
            changed = asyncio.get_running_loop().create_future()
            if not await self._changed(client, changed, until):
                raise self.session.unreachable()
            client = self.session.start()
        return client

    async def _changed(self, client: Any, changed: asyncio.Future[None], until: float) -> bool:
        loop = changed.get_loop()

        def listener() -> None:
            hand_over(loop, settle, changed)

        self.session.listeners.append(listener)
        try:
            return client.connected or await self._soon(changed, until)
        finally:
            self.session.listeners.remove(listener)

    async def _soon(self, future: asyncio.Future[Any], until: float) -> bool:
        """Whether it is done in time."""
        delay = min(until - self.store.now(), A_DAY)
        timer = future.get_loop().call_later(delay, future.cancel)
        try:
            await asyncio.wait([future])
        finally:
            timer.cancel()
        return not future.cancelled()

    def interrupt(self) -> None:
        """No call here lasts."""

    async def finish(self) -> None:
        """The end of the session follows everything that was asked."""
        await asyncio.to_thread(self.session.close)

    def retire(self) -> None:
        """The same where no loop runs."""
        self.session.close()

    def close(self) -> None:
        """End the session."""
        self.session.close()

    def after_fork(self) -> None:
        """The child will have a session of its own."""
        self.session.after_fork()


class Listener:
    """One ear in the ear: what it has yet to hear, and who listens."""

    def __init__(self) -> None:
        self.words: deque[str] = deque()
        self.future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """From any thread."""
        future = self.future
        if future is not None:
            hand_over(future.get_loop(), settle, future)

    async def listen(self, until: float, now: Callable[[], float]) -> None:
        """Until something is to be heard, or the time is up."""
        loop = asyncio.get_running_loop()
        self.future = loop.create_future()
        timer = loop.call_later(min(until - now(), A_DAY), settle, self.future)
        try:
            # What came before there was a future is not waited for.
            if not self.words:
                await self.future
        finally:
            timer.cancel()
            self.future = None


class AioEar:
    """Hears which watched nodes have changed. Each way of locking has an ear of its own in it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.listeners: dict[str, Listener] = {}
        self.ended = False

    def heard(self, word: str) -> None:
        """In kazoo's thread: for whoever listens."""
        for listener in list(self.listeners.values()):
            listener.words.append(word)
            listener.wake()

    async def call(self, request: object, until: float) -> object:
        """All words since the last time."""
        assert isinstance(request, (Listen, Poke))
        listener = self.listeners.setdefault(request.client, Listener())
        if isinstance(request, Poke):
            listener.words.append(".")
            listener.wake()
            return None
        if not self.ended:
            await listener.listen(until, self.now)
        if self.ended:
            raise NotApplied("the client was closed")
        if not listener.words:
            raise OutcomeUnknown("nothing was heard in time")
        return tuple(listener.words.popleft() for _ in range(len(listener.words)))

    def interrupt(self) -> None:
        """End the calls under way, and those to come until `close`."""
        self.ended = True
        for listener in self.listeners.values():
            listener.wake()

    async def finish(self) -> None:
        """Nothing runs in the loop."""

    def retire(self) -> None:
        """Nothing ran in the loop."""

    def close(self) -> None:
        """Be ready for another life."""
        self.listeners = {}
        self.ended = False

    def after_fork(self) -> None:
        """The child hears nothing of the parent's."""
        self.close()
