"""Who of one client waits for which lock in asyncio, and who of them looks.

Law 1: the waiters of a client for one lock are a crowd. They share two channels, and the first of
them looks for all: it asks again at its time, the others only when a message names them. Whoever
becomes the first looks within `LOOK_AGAIN_MS`; so any living client moves the queue on, however
many wait in it.
Law 2: who may have missed a message looks at once: all of a wire that is lost, all of a
subscription that the server has ended, and who follows a first one that gave up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leaselock.backends.redis.hash import LOOK_AGAIN_MS, NEVER
from leaselock.backends.redis.keys import message_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.redis.steps import Waiting
    from leaselock.backends.redis.wire import Wire
    from leaselock.core.backend import Busy, Claim

# Who waits for longer than this needs no clock to be woken by.
LONG = 1e8
LONGEST_TIMER = 3600.0


class Crowd:
    """All who wait for one lock on one wire, in the order they came."""

    __slots__ = ("channels", "name", "patrol", "sharded", "waiters", "wire")

    def __init__(self, name: str, wire: Wire, waiting: Waiting) -> None:
        self.name = name
        self.wire = wire
        self.channels = waiting.channels
        self.sharded = waiting.sharded
        self.waiters: dict[str, Waiter] = {}
        self.patrol: asyncio.TimerHandle | None = None

    def wake_first(self) -> None:
        """Have the first one look."""
        self.patrol = None
        for waiter in self.waiters.values():
            waiter.wake()
            return

    def soon(self) -> None:
        """Have whoever is the first then look, once the time has passed that one may wait."""
        loop = self.wire.loop
        if self.patrol is None and not loop.is_closed():
            self.patrol = loop.call_later(LOOK_AGAIN_MS / 1000, self.wake_first)


class Waiter:
    """One waiting task, and whether a message has come for it."""

    __slots__ = ("crowd", "future", "heard")

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.heard = False
        self.future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """A message has come, or may have been missed."""
        self.heard = True
        future = self.future
        if future is not None and not future.done() and not future.get_loop().is_closed():
            future.set_result(None)


class Listening:
    """All crowds of a client."""

    def __init__(self, now: Callable[[], float], told: Callable[[str], str]) -> None:
        self.now = now
        self.told = told
        self.waiting: dict[str, Waiter] = {}
        self.crowds: dict[str, Crowd] = {}
        self.channels: dict[str, Crowd] = {}

    def listen(self, wire: Wire, waiting: Waiting) -> None:
        """Have the claim's channels listened to on *wire*, before what is sent next."""
        name, holder = waiting.claim.name, waiting.claim.id
        crowd = self.crowds.get(name)
        waiter = self.waiting.get(holder)
        if waiter is not None:
            if waiter.crowd is crowd and crowd.wire is wire:
                waiter.heard = False
                self._subscribe(crowd, refused=True)
                return
            self._part(holder, waiter)
        if crowd is None or crowd.wire is not wire:
            self._leave_behind(crowd)
            crowd = self._gather(Crowd(name, wire, waiting))
        else:
            self._subscribe(crowd, refused=True)
        self.waiting[holder] = crowd.waiters[holder] = Waiter(crowd)

    def _leave_behind(self, crowd: Crowd | None) -> None:
        """The lock is elsewhere now, and nobody is told of it here."""
        for waiter in crowd.waiters.values() if crowd is not None else ():
            waiter.wake()

    def _gather(self, crowd: Crowd) -> Crowd:
        self.crowds[crowd.name] = crowd
        for channel in crowd.channels:
            self.channels[channel] = crowd
        self._subscribe(crowd, refused=False)
        return crowd

    def _subscribe(self, crowd: Crowd, *, refused: bool) -> None:
        """Ask for the channels; or, again, for those that were *refused*."""
        if refused and not crowd.wire.refused:
            return
        for channel in crowd.channels:
            if not refused or channel in crowd.wire.refused:
                crowd.wire.tell(_verb("SUBSCRIBE", crowd.sharded), channel)

    def watched(self, claim: Claim, busy: Busy) -> Busy:
        """The answer for one who waits: only the first of a crowd looks again by itself."""
        waiter = self.waiting.get(claim.id)
        if waiter is None or next(iter(waiter.crowd.waiters)) == claim.id:
            return busy
        return busy._replace(retry_after=NEVER)

    def _part(self, holder: str, waiter: Waiter, *, gave_up: bool = False) -> None:
        crowd = waiter.crowd
        first = next(iter(crowd.waiters)) == holder
        del self.waiting[holder], crowd.waiters[holder]
        if not crowd.waiters:
            self._disperse(crowd)
        elif first and gave_up:
            crowd.wake_first()
        elif first:
            crowd.soon()

    def _disperse(self, crowd: Crowd) -> None:
        if crowd.patrol is not None:
            crowd.patrol.cancel()
        if self.crowds.get(crowd.name) is crowd:
            del self.crowds[crowd.name]
        for channel in crowd.channels:
            if self.channels.get(channel) is crowd:
                del self.channels[channel]
            if crowd.wire.open:
                crowd.wire.tell(_verb("UNSUBSCRIBE", crowd.sharded), channel)

    def heard(self, wire: Wire, channel: str, word: str) -> None:
        """A message: for the one it names, else the first of those who listen looks."""
        waiter = self.waiting.get(message_of(word)[0])
        if waiter is not None:
            # Over another wire than that of the last question it may be older than the answer.
            if waiter.crowd.wire is wire:
                self.told(word)
            waiter.wake()
        elif (crowd := self.channels.get(channel)) is not None:
            for first in crowd.waiters.values():
                first.wake()
                return

    def lost(self, wire: Wire) -> None:
        """Messages may be missed from now on: whoever listened here must look."""
        for waiter in self.waiting.values():
            if waiter.crowd.wire is wire:
                waiter.wake()

    def ended(self, wire: Wire, channel: str) -> None:
        """The server has ended a subscription: whoever listened must look, and listen anew."""
        crowd = self.channels.get(channel)
        if crowd is not None and crowd.wire is wire:
            # The other channel is in the same slot, and over, too: there is nothing left to end.
            for each in crowd.channels:
                self.channels.pop(each, None)
            crowd.channels = ()
            for holder, waiter in list(crowd.waiters.items()):
                self._part(holder, waiter)
                waiter.wake()

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait for a message, or for *until*."""
        waiter = self.waiting.get(claim.id)
        if waiter is None or waiter.heard or not waiter.crowd.wire.open:
            return
        loop = asyncio.get_running_loop()
        waiter.future = loop.create_future()
        timer, left = None, until - self.now()
        if left < LONG:
            timer = loop.call_later(max(0.0, min(left, LONGEST_TIMER)), waiter.wake)
        try:
            await waiter.future
        finally:
            waiter.future = None
            if timer is not None:
                timer.cancel()

    def forget(self, holder: str, *, gave_up: bool) -> None:
        """The claim waits no more: it *gave up*, or has the lock."""
        waiter = self.waiting.get(holder)
        if waiter is not None:
            self._part(holder, waiter, gave_up=gave_up)
            waiter.wake()

    def wake_all(self) -> None:
        """Wake every waiting task."""
        for waiter in list(self.waiting.values()):
            waiter.wake()


def _verb(verb: str, sharded: bool) -> str:
    return f"S{verb}" if sharded else verb
