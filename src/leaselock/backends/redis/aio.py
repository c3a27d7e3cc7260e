"""The store for asyncio: one wire to each server, shared by all tasks of the client.

All waiters of a client for one lock share a channel, whose messages name the one they are for. So
ten thousand waiting tasks need one connection and, on one lock, one subscription.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from leaselock.backends.redis.codec import counted, packed
from leaselock.backends.redis.conversations import Conversations
from leaselock.backends.redis.listening import Listening
from leaselock.backends.redis.steps import (
    NONSENSE,
    Guarded,
    Pause,
    Send,
    Unreachable,
    senseless,
    unheard,
)
from leaselock.backends.redis.turns import Turns
from leaselock.backends.redis.wire import LEAST, Wire
from leaselock.core.backend import Acquire, AwaitWakeup, Busy, Release, Released
from leaselock.core.timing import pause
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leaselock.backends.redis.settings import Settings
    from leaselock.backends.redis.steps import Address, Steps
    from leaselock.core.backend import Claim


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
        self.talks = Conversations(self.settings, self.now, _address_of, self.form)
        self.turns = Turns(self.now)
        self.listening = Listening(self.now, self.talks.heard)

    def call(self, request: object, until: float) -> Awaitable[object]:
        """The answer of the store; Refused or Unknown when there is none by *until*."""
        if isinstance(request, AwaitWakeup):
            return self.listening.await_wakeup(request.claim, until)
        if self.turns.crowded() and type(request) is Acquire:
            return self._in_turn(request, until)
        return self._call(request, until)

    async def _in_turn(self, request: Acquire, until: float) -> object:
        return await self._call(request, await self.turns.come(until))

    async def _call(self, request: object, until: float) -> object:
        turns = self.turns
        turns.asking += 1
        try:
            waits = bool(self.listening.waiting) and self._waits(request)
            brief = None if waits else self.talks.brief(request)
            wire = None if brief is None else self.wires.get(brief.address)
            if brief is None or wire is None or not wire.open:
                answer = await self._converse(self.talks.about(request, waits), until)
            else:
                (reply,) = await wire.ask(packed(brief.commands), 1, until)
                answer = self.talks.settled(request, reply)
                if answer is None:
                    answer = await self._converse(self.talks.further(request, reply), until)
            turns.silent = False
        except Unreachable as error:
            turns.silent = True
            raise NotApplied(str(error)) from error
        except OutcomeUnknown:
            turns.silent = True
            raise
        except NONSENSE as error:
            raise senseless(error) from error
        finally:
            turns.end()
        return self._answered(request, answer) if self.listening.waiting else answer

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
            answer: object = done.value
            return answer

    def _waits(self, request: object) -> bool:
        """Whether the claim stands in the queue, or should at once: where others of ours do."""
        if not isinstance(request, Acquire):
            return False
        claim, listening = request.claim, self.listening
        return claim.id in listening.waiting or (request.wait and claim.name in listening.crowds)

    def _answered(self, request: object, answer: object) -> object:
        if isinstance(request, Release) and isinstance(answer, Released):
            self.listening.forget(request.claim.id, gave_up=answer.was != "held")
        elif isinstance(request, Acquire) and isinstance(answer, Busy):
            return self.listening.watched(request.claim, answer)
        return answer

    async def _take(self, step: Send | Guarded | Pause, until: float) -> object:
        if isinstance(step, Pause):
            return await self._pause(step.attempt, until)
        wire = self.wires.get(step.address)
        if wire is None or not wire.open:
            began = self.now()
            wire = await self._connect(step.address, until - began)
            # Many may have waited for the same wire: each has its time to ask yet.
            until += self.now() - began
        if isinstance(step, Guarded):
            return await _guarded(wire, step, until)
        if step.waiting is None:
            return await wire.ask(packed(step.commands), counted(step.commands), until)
        self.listening.listen(wire, step.waiting)
        replies = await wire.ask(packed(step.commands), counted(step.commands), until)
        # Refused before the replies came, since it was asked before.
        refused = (wire.refused.get(channel) for channel in step.waiting.channels)
        refusal = next(filter(None, refused), None)
        return replies if refusal is None else unheard(step.address, refusal, len(replies))

    async def _pause(self, attempt: int, until: float) -> bool:
        seconds = pause(attempt + 2, 0.5)
        if self.now() + seconds >= until:
            return False
        await asyncio.sleep(seconds)
        return True

    async def _connect(self, address: Address, seconds: float) -> Wire:
        """The wire to *address*; whoever else wants it waits for the same one.

        It is made in a task of its own: no asker that is cancelled takes it from the others, and
        what redis-py does meanwhile cannot swallow a cancellation, as `asyncio.wait_for` did
        before Python 3.12.
        """
        task = self.connecting.get(address)
        if task is None:
            task = asyncio.create_task(self._open(address, seconds), name="leaselock-connect")
            self.connecting[address] = task
            task.add_done_callback(lambda task: self._connected(address, task))
        done, _ = await asyncio.wait((task,), timeout=max(LEAST, seconds))
        if not done or task.cancelled():
            raise Unreachable(f"{address}: no connection within its time")
        return task.result()

    async def _open(self, address: Address, seconds: float) -> Wire:
        wire = Wire(
            address,
            self.now,
            self.listening.heard,
            self.listening.lost,
            self.listening.ended,
        )
        await wire.connect(self.settings, self.now() + seconds)
        return wire

    def _connected(self, address: Address, task: asyncio.Task[Wire]) -> None:
        if self.connecting.get(address) is task:
            del self.connecting[address]
        if not task.cancelled() and task.exception() is None:
            self.wires[address] = task.result()

    def forget(self, holder: str) -> None:
        """The claim waits no more."""
        gave_up = self.talks.forget(holder)
        if self.listening.waiting:
            self.listening.forget(holder, gave_up=gave_up)

    def wake_all(self) -> None:
        """Wake every waiting task: the client is closing."""
        self.listening.wake_all()

    def interrupt(self) -> None:
        """No call lasts beyond its deadline but those that wait."""
        self.wake_all()

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
        replies = await wire.ask(packed(step.inspect), len(step.inspect), until)
        if not step.met(replies):
            await wire.ask(packed([("UNWATCH",)]), 1, until)
            return [*replies, None]
        transaction = step.transaction()
        return [*replies, (await wire.ask(packed(transaction), len(transaction), until))[-1]]


def _address_of(claim: Claim) -> str:
    """All waiting tasks of a client share one channel for each lock."""
    return claim.client
