"""The store for asyncio: one wire to each server, shared by all tasks of the client.

All waiters of a client for one lock share a channel, whose messages name the one they are for. So
ten thousand waiting tasks need one connection and, on one lock, one subscription.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.backends.redis.conversations import Conversations
from holdfast.backends.redis.line import counted, packed
from holdfast.backends.redis.steps import Guarded, Pause, Send, Unreachable, unheard
from holdfast.backends.redis.wire import Wire
from holdfast.core.backend import Ask, Hear, Leave
from holdfast.core.pace import pause
from holdfast.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.backends.redis.settings import Settings
    from holdfast.backends.redis.steps import Address, Steps, Waiting
    from holdfast.core.backend import Claim


class Waiter:
    """One waiting task: the wire it listens on, and whether a message has come."""

    __slots__ = ("channels", "future", "heard", "wire")

    def __init__(self, wire: Wire, channels: tuple[str, ...]) -> None:
        self.wire = wire
        self.channels = channels
        self.heard = False
        self.future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """A message has come, or may have been missed."""
        self.heard = True
        future = self.future
        if future is not None and not future.done() and not future.get_loop().is_closed():
            future.set_result(None)


class AioStore:
    """Carries out requests in the tasks of one loop."""

    def __init__(self, settings: Settings, now: Callable[[], float], form: str) -> None:
        self.settings = settings
        self.form = form
        self.now = now
        self.begin()

    def begin(self) -> None:
        """Nothing is connected, and nobody waits."""
        self.wires: dict[Address, Wire] = {}
        self.connecting: dict[Address, asyncio.Task[Wire]] = {}
        self.waiting: dict[str, Waiter] = {}
        # Who listens to a channel, in the order they came; the first looks when nobody is named.
        self.listeners: dict[str, dict[str, Waiter]] = {}
        self.talks = Conversations(self.settings, self.now, _address_of, self.form)

    async def call(self, request: object, until: float) -> object:
        """The answer of the store; Refused or Unknown when there is none by *until*."""
        if isinstance(request, Hear):
            await self._hear(request.claim, until)
            return None
        waits = isinstance(request, Ask) and request.claim.holder in self.waiting
        answer = await self._converse(self.talks.about(request, waits), until)
        if isinstance(request, Leave):
            self.forget(request.claim.holder)
        return answer

    async def _converse(self, steps: Steps[Any], until: float) -> object:
        try:
            step = next(steps)
            while True:
                try:
                    outcome = await self._take(step, until)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as done:
            return done.value
        except Unreachable as error:
            raise Refused(str(error)) from error

    async def _take(self, step: Send | Guarded | Pause, until: float) -> object:
        if isinstance(step, Pause):
            return await self._pause(step.attempt, until)
        wire = self.wires.get(step.address)
        if wire is None or not wire.open:
            wire = await self._connect(step.address, until)
        if isinstance(step, Guarded):
            return await _guarded(wire, step, until)
        if step.waiting is None:
            return await wire.ask(packed(step.commands), counted(step.commands), until)
        self._listen(wire, step.waiting)
        replies = await wire.ask(packed(step.commands), counted(step.commands), until)
        # Refused before the replies came, since it was asked before.
        refused = (wire.refused.get(channel) for channel in step.waiting.channels)
        refusal = next(filter(None, refused), None)
        return replies if refusal is None else [unheard(step.address, refusal)]

    async def _pause(self, attempt: int, until: float) -> bool:
        seconds = pause(attempt + 2, 0.5)
        if self.now() + seconds >= until:
            return False
        await asyncio.sleep(seconds)
        return True

    async def _connect(self, address: Address, until: float) -> Wire:
        """The wire to *address*; whoever else wants it waits for the same one.

        It is made in a task of its own: no asker that is cancelled takes it from the others, and
        what redis-py does meanwhile cannot swallow a cancellation, as `asyncio.wait_for` did
        before Python 3.12.
        """
        task = self.connecting.get(address)
        if task is None:
            task = asyncio.create_task(self._open(address, until), name="holdfast-connect")
            self.connecting[address] = task
            task.add_done_callback(lambda task: self._connected(address, task))
        return await asyncio.shield(task)

    async def _open(self, address: Address, until: float) -> Wire:
        wire = Wire(address, self.now, self._heard, self._lost, self._ended)
        await wire.connect(self.settings, until)
        return wire

    def _connected(self, address: Address, task: asyncio.Task[Wire]) -> None:
        if self.connecting.get(address) is task:
            del self.connecting[address]
        if not task.cancelled() and task.exception() is None:
            self.wires[address] = task.result()

    def _listen(self, wire: Wire, waiting: Waiting) -> None:
        """Have the claim's channels listened to on *wire*, before what is sent next."""
        holder = waiting.claim.holder
        waiter = self.waiting.get(holder)
        if waiter is not None and waiter.wire is wire:
            waiter.heard = False
            return
        if waiter is not None:
            self._deafen(holder, waiter)
        waiter = self.waiting[holder] = Waiter(wire, waiting.channels)
        for channel in waiting.channels:
            listeners = self.listeners.setdefault(channel, {})
            heard = any(other.wire is wire for other in listeners.values())
            if not heard or channel in wire.refused:
                wire.tell(_verb("SUBSCRIBE", waiting.sharded), channel)
            listeners[holder] = waiter

    def _deafen(self, holder: str, waiter: Waiter) -> None:
        for channel in waiter.channels:
            listeners = self.listeners.get(channel, {})
            listeners.pop(holder, None)
            if not listeners:
                self.listeners.pop(channel, None)
                if waiter.wire.open:
                    sharded = self.talks.talk.route.sharded
                    waiter.wire.tell(_verb("UNSUBSCRIBE", sharded), channel)

    def _heard(self, channel: str, word: str) -> None:
        waiter = self.waiting.get(word)
        if waiter is None:
            # Not for one of ours by name: a release by another program. One of us looks.
            waiter = next(iter(self.listeners.get(channel, {}).values()), None)
        if waiter is not None:
            waiter.wake()

    def _lost(self, wire: Wire) -> None:
        """Messages may be missed from now on: whoever listened here must look."""
        for waiter in self.waiting.values():
            if waiter.wire is wire:
                waiter.wake()

    def _ended(self, wire: Wire, channel: str) -> None:
        """The server has ended a subscription: whoever listened must look, and listen anew."""
        for holder, waiter in list(self.listeners.get(channel, {}).items()):
            if waiter.wire is wire:
                del self.waiting[holder]
                self._deafen(holder, waiter)
                waiter.wake()

    async def _hear(self, claim: Claim, until: float) -> None:
        waiter = self.waiting.get(claim.holder)
        if waiter is None or waiter.heard or not waiter.wire.open:
            return
        loop = asyncio.get_running_loop()
        waiter.future = loop.create_future()
        timer = loop.call_later(max(0.0, min(until - self.now(), 3600.0)), waiter.wake)
        try:
            await waiter.future
        finally:
            timer.cancel()
            waiter.future = None

    def forget(self, holder: str) -> None:
        """The claim waits no more."""
        self.talks.forget(holder)
        waiter = self.waiting.pop(holder, None)
        if waiter is not None:
            self._deafen(holder, waiter)

    def disturb(self) -> None:
        """Wake every waiting task: the client is closing."""
        for waiter in list(self.waiting.values()):
            waiter.wake()

    def interrupt(self) -> None:
        """No call lasts beyond its deadline but those that wait."""
        self.disturb()

    async def finish(self) -> None:
        """Close the wires; what was asked is answered, or its asker is gone."""
        connecting = list(self.connecting.values())
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        for wire in list(self.wires.values()):
            wire.close()
        await asyncio.sleep(0)

    def retire(self) -> None:
        """The loop is closed: nothing of it can be used any more."""
        for wire in self.wires.values():
            wire.abandon()
        self.wires = {}

    def close(self) -> None:
        """Begin anew."""
        self.begin()

    def after_fork(self) -> None:
        """The parent's loop is not ours; only the copies of its descriptors are."""
        self.retire()
        self.begin()


async def _guarded(wire: Wire, step: Guarded, until: float) -> list[Any]:
    # What is watched is watched for the whole wire, until the next transaction on it.
    async with wire.guard:
        replies = await wire.ask(packed(step.look), len(step.look), until)
        if replies[-1] != step.value:
            await wire.ask(packed([("UNWATCH",)]), 1, until)
            return [*replies, None]
        transaction = step.transaction()
        return [*replies, (await wire.ask(packed(transaction), len(transaction), until))[-1]]


def _verb(verb: str, sharded: bool) -> str:
    return f"S{verb}" if sharded else verb


def _address_of(claim: Claim) -> str:
    """All waiting tasks of a client share one channel for each lock."""
    return claim.client
