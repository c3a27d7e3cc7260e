"""The backend of a store that has a queue of its own and notifies the waiters.

It sends requests to the store, which carries out the `rules`, and listens for messages. The
listening process is started by the first wait. A message is only a hint to ask the store again.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, TypeVar

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

    from leaselock.core.effects import Request

R = TypeVar("R")


class Queue(StoreMaintenance):
    """Locks on a store with a queue of its own."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.signals: dict[str, Signal] = {}
        self.listening = Background()

    @abc.abstractmethod
    def listen(self, client: str) -> Awaitable[Iterable[str]]:
        """Wait for messages of other clients."""

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try. The signal exists before the request is sent, so no wake-up is missed."""
        if wait:
            signal = self.signals.get(claim.id)
            if signal is None:
                self.signals[claim.id] = Signal()
            else:
                signal.is_set = False
            if not self.listening.running:
                await self.listening.start(lambda: self._listen(claim.client), "listener")
        reply = await self.request(Acquire(claim, wait), until)
        if reply.notified:
            self._wake(reply.notified)
        return reply

    async def _listen(self, client: str) -> None:
        try:
            while True:
                self._wake(await self.listen(client))
        except StoreError:
            # The client was closed, or the listener has failed. Every wait also looks again by
            # itself, and the next one starts another listening process.
            self.wake_all()

    def _wake(self, claim_ids: Iterable[str]) -> None:
        for claim_id in claim_ids:
            if claim_id == WAKE_ALL:
                self.wake_all()
            elif (signal := self.signals.get(claim_id)) is not None:
                signal.set()

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait for a notification."""
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

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold."""
        return await self.request(SetLifetime(claim, lifetime), until)

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """Who holds, who waits."""
        return await self.request(Inspect(name, pattern), until)

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """Take the lock away."""
        reply = await self.request(BreakLock(name, token), until)
        self._wake(reply.notified)
        return reply

    def forget(self, claim: Claim) -> None:
        """Stop waiting: the claim was granted, or its release is already scheduled."""
        signal = self.signals.pop(claim.id, None)
        if signal is not None:
            signal.set()

    def wake_all(self) -> None:
        """Wake every waiter, to ask again."""
        self._wake(list(self.signals))

    def reset_identity(self) -> None:
        """Drop the waiters and the listening process."""
        self.signals = {}
        self.listening = Background()


class NodeQueue(Queue):
    """The queue of a store that is one node; its *listener* is another, which receives messages."""

    def __init__(self, capabilities: Capabilities, store: Any, listener: Any) -> None:
        super().__init__(capabilities)
        self.store = store
        self.listener = listener

    def request(self, request: Request[R], until: float) -> Awaitable[R]:
        """Send one request to the store."""
        return Call(self.store, request, until)

    def listen(self, client: str) -> Awaitable[Iterable[str]]:
        """Wait for messages of other clients."""
        return Call(self.listener, Listen(client), FOREVER)
