"""The backend of a store that keeps the queue itself and says whom to wake.

It asks a node "store", which carries out the `rules`, and listens to a node "ear", which tells
what other clients have done. The listener is one process per client, started by the first wait.
A message is only a hint: what it says is found out by asking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.backend import (
    WAKE_ALL,
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Capabilities,
    Claim,
    Grant,
    Inspect,
    Lifetime,
    LifetimeSet,
    Listen,
    LockState,
    Release,
    Renew,
    SetLifetime,
)
from leaselock.core.effects import FOREVER, Call, Signal, Wait
from leaselock.core.maintenance import StoreMaintenance
from leaselock.core.singleton_process import Background
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence


class Queue(StoreMaintenance):
    """Locks on a store with a queue of its own."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.signals: dict[str, Signal] = {}
        self.listening = Background()

    def listen(self, client: str) -> Awaitable[Iterable[str]]:
        """Wait for messages of other clients."""
        return Call("ear", Listen(client), FOREVER)

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try. The signal is ready before the question leaves, so no wake-up is missed."""
        if wait:
            self._prepare(claim)
            if not self.listening.running:
                await self.listening.start(lambda: self._listen(claim.client), "listener")
        reply = await self.request(Acquire(claim, wait), until)
        if reply.notified:
            self._wake(reply.notified)
        return reply

    def _prepare(self, claim: Claim) -> None:
        signal = self.signals.get(claim.id)
        if signal is None:
            self.signals[claim.id] = Signal()
        else:
            signal.clear()

    async def _listen(self, client: str) -> None:
        try:
            while True:
                self._wake(await self.listen(client))
        except StoreError:
            # The client was closed, or its ear is gone: nobody is missed by that, for every
            # wait also looks again by itself; the next wait starts another listener.
            self.wake_all()

    def _wake(self, holders: Iterable[str]) -> None:
        for holder in holders:
            if holder == WAKE_ALL:
                self.wake_all()
            elif (signal := self.signals.get(holder)) is not None:
                signal.set()

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait to be woken."""
        await Wait(self.signals[claim.id], until)

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool]:
        """Renew all in one request."""
        return await self.request(Renew(claims), until)

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release, or leave the queue."""
        reply = await self.request(Release(claim, tombstone), until)
        if reply.notified:
            self._wake(reply.notified)
        return reply.was == "held"

    async def set_lifetime(self, claim: Claim, tie: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold."""
        return await self.request(SetLifetime(claim, tie), until)

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """Who holds, who waits."""
        return await self.request(Inspect(name, pattern), until)

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """Take the lock away."""
        reply = await self.request(BreakLock(name, token), until)
        self._wake(reply.notified)
        return reply

    def forget(self, claim: Claim) -> None:
        """The claim waits no more, should anything wait for it."""
        signal = self.signals.pop(claim.id, None)
        if signal is not None:
            signal.set()

    def wake_all(self) -> None:
        """Wake every waiter, to look again."""
        self._wake(list(self.signals))

    def reset_identity(self) -> None:
        """After a fork, nobody here waits and nobody listens."""
        self.signals = {}
        self.listening = Background()
