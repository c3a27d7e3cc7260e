"""The backend of a store that has a queue of its own and notifies the waiters.

It sends requests to the store, which carries out the `rules`, and listens for messages from the
first wait on. A message is only a hint to ask the store again.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._core.contract.backend import (
    WAKE_ALL,
    Acquire,
    Backend,
    Busy,
    Capabilities,
    Claim,
    Grant,
    Listen,
    Mismatch,
    Release,
    Released,
)
from leaselock._core.contract.effects import Call, Signal, Wait
from leaselock.errors import LimitMismatch, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from leaselock._core.contract.effects import Request

R = TypeVar("R")


class QueueBackend(Backend):
    """Locks on a store with a queue of its own."""

    @abc.abstractmethod
    def send(self, request: Request[R], until: float) -> Awaitable[R]:
        """Send one request to the store."""

    @abc.abstractmethod
    async def start_listening(self, client: str) -> None:
        """Receive the messages of other clients from now on."""

    def acquire(self, claim: Claim, *, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One try. The signal exists before the request is sent, so no wake-up is missed."""
        return self._send_acquire(claim, wait, until)

    async def _send_acquire(self, claim: Claim, wait: bool, until: float) -> Grant | Busy:
        if wait:
            self.expect_wakeup(claim)
            await self.start_listening(claim.client)
        request = Acquire(claim, wait)
        return self.acquired(request, await self.send(request, until))

    def acquired(self, request: Acquire, reply: Grant | Busy | Mismatch) -> Grant | Busy:
        """The reply to an acquire; its notifications are delivered."""
        if reply.notified:
            self.wake(reply.notified)
        if isinstance(reply, Mismatch):
            claim = request.claim
            wanted = claim.limit if claim.mode == "permits" else None
            raise LimitMismatch(claim.name, wanted, reply.limit, claim.permits)
        return reply

    async def request(self, request: Request[R], until: float) -> R:
        """Send one request. What it expects is listened for before it is sent."""
        claim: Claim | None = request.expects()
        if claim is not None:
            self.expect_wakeup(claim)
            await self.start_listening(claim.client)
        reply: Any = await self.send(request, until)
        if request.wakes:
            self.wake(reply.notified)
        return reply  # type: ignore[no-any-return]

    def release(self, claim: Claim, *, tombstone: bool, until: float) -> Awaitable[bool]:
        """Release, or leave the queue."""
        return self._send_release(Release(claim, tombstone), until)

    async def _send_release(self, request: Release, until: float) -> bool:
        return self.released(request, await self.send(request, until))

    def released(self, request: Release, reply: Released) -> bool:
        """The reply to a release; its notifications are delivered."""
        if reply.notified:
            self.wake(reply.notified)
        return reply.was == "held"

    def heard(self, claim_ids: Sequence[str]) -> None:
        """Wake the claims that a listener has reported."""
        if WAKE_ALL in claim_ids:
            self.wake_all()
        else:
            self.wake(claim_ids)


class NodeBackend(QueueBackend):
    """The queue of a store that is one node; its *listener* is another, which receives messages. A
    store without messages has none: each waiter asks again when the store's reply says.

    The renewer listens while it has nothing else to do.
    """

    def __init__(self, capabilities: Capabilities, store: Any, listener: Any = None) -> None:
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

    def acquire(self, claim: Claim, *, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One request."""
        if wait:
            self.expect_wakeup(claim)
            self._listen(claim.client)
        return Call(self.store, Acquire(claim, wait), until, self.acquired)

    def release(self, claim: Claim, *, tombstone: bool, until: float) -> Awaitable[bool]:
        """One request."""
        return Call(self.store, Release(claim, tombstone), until, self.released)

    async def start_listening(self, client: str) -> None:
        """Let the renewer listen from now on."""
        self._listen(client)

    def _listen(self, client: str) -> None:
        if self.client is None and self.listener is not None:
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
                self.wake_all()
            else:
                self.heard(claim_ids)
                if not claim_ids:
                    return
        await Wait(changed, until)

    def after_fork(self) -> None:
        """Drop the waiters, and listen no more."""
        super().after_fork()
        self.client = self.changed = None
