"""The backend of a store that has a queue of its own and notifies the waiters.

It sends requests to the store, which carries out the `rules`, and listens for messages from the
first wait on. A message is only a hint to ask the store again.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._core.backend import (
    WAKE_ALL,
    Acquire,
    Backend,
    BreakLock,
    Busy,
    Capabilities,
    Claim,
    Convert,
    Grant,
    Lifetime,
    LifetimeSet,
    Listen,
    Mismatch,
    Release,
    Renew,
    Resize,
    SetLifetime,
    Watch,
)
from leaselock._core.effects import Call, Signal, Wait
from leaselock.errors import LimitMismatch, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from leaselock._core.effects import Request

R = TypeVar("R")


class Queue(Backend):
    """Locks on a store with a queue of its own."""

    def __init__(self, capabilities: Capabilities) -> None:
        super().__init__(capabilities)
        self.signals: dict[str, Signal] = {}

    @abc.abstractmethod
    def send(self, request: Request[R], until: float) -> Awaitable[R]:
        """Send one request to the store."""

    @abc.abstractmethod
    async def start_listening(self, client: str) -> None:
        """Receive the messages of other clients from now on."""

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try. The signal exists before the request is sent, so no wake-up is missed."""
        if wait:
            await self._expect_wakeup(claim)
        reply = await self.send(Acquire(claim, wait), until)
        if reply.notified:
            self.wake(reply.notified)
        if isinstance(reply, Mismatch):
            wanted = claim.limit if claim.mode == "permits" else None
            raise LimitMismatch(claim.name, wanted, reply.limit, claim.permits)
        return reply

    async def request(self, request: Request[R], until: float) -> R:
        """Send one request. A watcher, and a hold that waits to become exclusive, are notified."""
        if isinstance(request, Watch) or (
            isinstance(request, Convert) and request.mode == "exclusive"
        ):
            await self._expect_wakeup(request.claim)
        reply: Any = await self.send(request, until)
        if isinstance(request, (Convert, Resize, BreakLock)):
            self.wake(reply.notified)
        return reply  # type: ignore[no-any-return]

    async def _expect_wakeup(self, claim: Claim) -> None:
        signal = self.signals.get(claim.id)
        if signal is None:
            self.signals[claim.id] = Signal()
        else:
            signal.is_set = False
        await self.start_listening(claim.client)

    def wake(self, claim_ids: Iterable[str] = (WAKE_ALL,)) -> None:
        """Let these claims ask again, or all of them."""
        for claim_id in claim_ids:
            if claim_id == WAKE_ALL:
                self.wake(list(self.signals))
            elif (signal := self.signals.get(claim_id)) is not None:
                signal.set()

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait for a notification."""
        await Wait(self.signals[claim.id], until)

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool]:
        """Renew all in one request."""
        return await self.send(Renew(claims), until)

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release, or leave the queue."""
        reply = await self.send(Release(claim, tombstone), until)
        if reply.notified:
            self.wake(reply.notified)
        return reply.was == "held"

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold."""
        return await self.send(SetLifetime(claim, lifetime), until)

    def forget(self, claim: Claim) -> None:
        """Stop waiting: the claim was granted, or its release is already scheduled."""
        signal = self.signals.pop(claim.id, None)
        if signal is None:
            return
        if signal.wakers:
            signal.set()
        else:
            signal.is_set = True

    def close(self) -> None:
        """End all waits: the client is closing."""
        self.wake()

    def reset_identity(self) -> None:
        """Drop the waiters."""
        self.signals = {}


class NodeQueue(Queue):
    """The queue of a store that is one node; its *listener* is another, which receives messages.

    The renewer listens while it has nothing else to do.
    """

    def __init__(self, capabilities: Capabilities, store: Any, listener: Any) -> None:
        super().__init__(capabilities)
        self.store = store
        self.listener = listener
        # The client whose messages are received, from its first wait on.
        self.client: str | None = None
        # What interrupts the renewer, once it has begun to wait.
        self.changed: Signal | None = None

    def send(self, request: Request[R], until: float) -> Awaitable[R]:
        """Send one request to the store."""
        return Call(self.store, request, until)

    async def start_listening(self, client: str) -> None:
        """Let the renewer listen from now on."""
        if self.client is None:
            self.client = client
            if self.changed is not None:
                self.changed.set()

    async def wait_and_listen(self, changed: Signal, until: float) -> None:
        """Wait for *changed*, at most until *until*; wake the waiters that messages name."""
        self.changed = changed
        while self.client is not None and not changed.is_set:
            try:
                claim_ids = await Call(self.listener, Listen(self.client, changed), until)
            except StoreError:
                # The client was closed, or the listener has failed. Every wait also looks again by
                # itself, and the next one tries to listen again.
                self.client = None
                self.wake()
            else:
                self.wake(claim_ids)
                if not claim_ids:
                    return
        await Wait(changed, until)

    def reset_identity(self) -> None:
        """Drop the waiters, and listen no more."""
        super().reset_identity()
        self.client = self.changed = None
