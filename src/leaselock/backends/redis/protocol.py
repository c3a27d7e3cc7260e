"""The backend of a store whose node itself listens for each waiter's message.

It is the text of `core.queue.Queue` without its listener: to wait is a question to the node, which
answers it when a message for the claim has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.backend import (
    Acquire,
    AwaitWakeup,
    BreakLock,
    Broken,
    Busy,
    Capabilities,
    Claim,
    Grant,
    Inspect,
    Lifetime,
    LifetimeSet,
    LockState,
    Release,
    Released,
    Renew,
    SetLifetime,
)
from leaselock.core.effects import Call, Signal, Wait
from leaselock.core.maintenance import StoreMaintenance

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

# The server counts its TTLs by the wall clock, which is set now and then: hence the drift, which
# covers a clock that is slewed, not one that jumps. Its granularity is a millisecond.
CAPABILITIES = Capabilities(clock_drift=0.001, clock_margin=0.005, life=False, inheritable=False)
# The older protocols draw a token after the lock was taken, one for each grant.
RESERVING = CAPABILITIES._replace(token_ranges=True)


class Handed(StoreMaintenance):
    """Locks that the server hands from holder to waiter."""

    def __init__(
        self,
        node: str,
        capabilities: Capabilities,
        forget: Callable[[str], None],
        wake_all: Callable[[], None],
    ) -> None:
        self.node = node
        self.capabilities = capabilities
        self._forget = forget
        self._disturb = wake_all

    def acquire(self, claim: Claim, *, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One try. The node listens before it queues, so no message is missed (hazard E1)."""
        return Call(self.node, Acquire(claim, wait), until)

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for the message. No coroutine of its own: each one who waits would pay for it."""
        return Call(self.node, AwaitWakeup(claim), until)

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Renew all in one request."""
        answer: Sequence[bool | None] = await Call(self.node, Renew(claims), until)
        return answer

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release, or leave the queue."""
        reply: Released = await Call(self.node, Release(claim, tombstone), until)
        return reply.was == "held"

    async def set_lifetime(self, claim: Claim, tie: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold."""
        answer: LifetimeSet = await Call(self.node, SetLifetime(claim, tie), until)
        return answer

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """Who holds, who waits."""
        answer: Sequence[LockState] = await Call(self.node, Inspect(name, pattern), until)
        return answer

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """Take the lock away."""
        answer: Broken = await Call(self.node, BreakLock(name, token), until)
        return answer

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        self._forget(claim.id)

    def wake_all(self) -> None:
        """Wake every waiter, to look again."""
        self._disturb()

    def reset_identity(self) -> None:
        """After a fork; the node has let go of everything by itself."""


class Polled(Handed):
    """Locks of a format that tells nobody of a release: who waits looks again and again."""

    def __init__(
        self,
        node: str,
        capabilities: Capabilities,
        forget: Callable[[str], None],
        wake_all: Callable[[], None],
    ) -> None:
        super().__init__(node, capabilities, forget, wake_all)
        self.closing = Signal()

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait until it is time to look again."""
        return Wait(self.closing, until)

    def wake_all(self) -> None:
        """Wake every waiter; the client is closing."""
        self.closing.set()
        super().wake_all()

    def reset_identity(self) -> None:
        """After a fork, nobody here waits."""
        self.closing = Signal()
