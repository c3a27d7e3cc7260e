"""The backend of a store whose node itself listens for each waiter's message.

It is the text of `core.queue.Queue` without its listener: to wait is a question to the node, which
answers it when a message for the claim has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.backend import (
    Ask,
    Break,
    Broken,
    Busy,
    Capabilities,
    Claim,
    Grant,
    Hear,
    Leave,
    Left,
    Look,
    Renew,
    Retie,
    Retied,
    Sight,
    Tie,
)
from leaselock.core.effects import Call, Signal, Wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

# The server counts its TTLs by the wall clock, which is set now and then: hence the drift, which
# covers a clock that is slewed, not one that jumps. Its granularity is a millisecond.
CAPABILITIES = Capabilities(drift=0.001, margin=0.005, life=False, bequest=False)
# The older protocols draw a token after the lock was taken, one for each grant.
RESERVING = CAPABILITIES._replace(reserves=True)


class Handed:
    """Locks that the server hands from holder to waiter."""

    def __init__(
        self,
        node: str,
        capabilities: Capabilities,
        forget: Callable[[str], None],
        disturb: Callable[[], None],
    ) -> None:
        self.node = node
        self.capabilities = capabilities
        self._forget = forget
        self._disturb = disturb

    def ask(self, claim: Claim, *, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One try. The node listens before it queues, so no message is missed (hazard E1)."""
        return Call(self.node, Ask(claim, wait), until)

    def hear(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for the message. No coroutine of its own: each one who waits would pay for it."""
        return Call(self.node, Hear(claim), until)

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Renew all in one request."""
        answer: Sequence[bool | None] = await Call(self.node, Renew(claims), until)
        return answer

    async def leave(self, claim: Claim, *, bury: bool, until: float) -> bool:
        """Release, or leave the queue."""
        reply: Left = await Call(self.node, Leave(claim, bury), until)
        return reply.was == "held"

    async def retie(self, claim: Claim, tie: Tie, until: float) -> Retied:
        """Change what ends the hold."""
        answer: Retied = await Call(self.node, Retie(claim, tie), until)
        return answer

    async def look(self, name: str | None, pattern: str, until: float) -> Sequence[Sight]:
        """Who holds, who waits."""
        answer: Sequence[Sight] = await Call(self.node, Look(name, pattern), until)
        return answer

    async def evict(self, name: str, token: int | None, until: float) -> Broken:
        """Take the lock away."""
        answer: Broken = await Call(self.node, Break(name, token), until)
        return answer

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        self._forget(claim.holder)

    def disturb(self) -> None:
        """Wake every waiter, to look again."""
        self._disturb()

    def renewed_identity(self) -> None:
        """After a fork; the node has let go of everything by itself."""


class Polled(Handed):
    """Locks of a format that tells nobody of a release: who waits looks again and again."""

    def __init__(
        self,
        node: str,
        capabilities: Capabilities,
        forget: Callable[[str], None],
        disturb: Callable[[], None],
    ) -> None:
        super().__init__(node, capabilities, forget, disturb)
        self.closing = Signal()

    def hear(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait until it is time to look again."""
        return Wait(self.closing, until)

    def disturb(self) -> None:
        """Wake every waiter; the client is closing."""
        self.closing.set()
        super().disturb()

    def renewed_identity(self) -> None:
        """After a fork, nobody here waits."""
        self.closing = Signal()
