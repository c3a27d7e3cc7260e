"""The backend of a store that keeps the queue itself and says whom to wake.

It asks a node "store", which carries out the `rules`, and listens to a node "ear", which tells
what other clients have done. The listener is one process per client, started by the first wait.
A message is only a hint: what it says is found out by asking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.backend import (
    EVERYONE,
    Ask,
    Break,
    Broken,
    Busy,
    Capabilities,
    Claim,
    Grant,
    Leave,
    Left,
    Look,
    Next,
    Renew,
    Retie,
    Retied,
    Sight,
    Tie,
)
from leaselock.core.background import Background
from leaselock.core.effects import FOREVER, Call, Signal, Wait
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Queue:
    """Locks on a store with a queue of its own."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.signals: dict[str, Signal] = {}
        self.listening = Background()

    async def ask(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try. The signal is ready before the question leaves, so no wake-up is missed."""
        if wait:
            self._prepare(claim)
            if not self.listening.running:
                await self.listening.start(lambda: self._listen(claim.client), "listener")
        reply: Grant | Busy = await Call("store", Ask(claim, wait), until)
        if reply.woken:
            self._wake(reply.woken)
        return reply

    def _prepare(self, claim: Claim) -> None:
        signal = self.signals.get(claim.holder)
        if signal is None:
            self.signals[claim.holder] = Signal()
        else:
            signal.clear()

    async def _listen(self, client: str) -> None:
        try:
            while True:
                self._wake(await Call("ear", Next(client), FOREVER))
        except StoreError:
            # The client was closed, or its ear is gone: nobody is missed by that, for every
            # wait also looks again by itself; the next wait starts another listener.
            self.disturb()

    def _wake(self, holders: Iterable[str]) -> None:
        for holder in holders:
            if holder == EVERYONE:
                self.disturb()
            elif (signal := self.signals.get(holder)) is not None:
                signal.set()

    async def hear(self, claim: Claim, until: float) -> None:
        """Wait to be woken."""
        await Wait(self.signals[claim.holder], until)

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool]:
        """Renew all in one request."""
        answer: Sequence[bool] = await Call("store", Renew(claims), until)
        return answer

    async def leave(self, claim: Claim, *, bury: bool, until: float) -> bool:
        """Release, or leave the queue."""
        reply: Left = await Call("store", Leave(claim, bury), until)
        if reply.woken:
            self._wake(reply.woken)
        return reply.was == "held"

    async def retie(self, claim: Claim, tie: Tie, until: float) -> Retied:
        """Change what ends the hold."""
        answer: Retied = await Call("store", Retie(claim, tie), until)
        return answer

    async def look(self, name: str | None, pattern: str, until: float) -> Sequence[Sight]:
        """Who holds, who waits."""
        answer: Sequence[Sight] = await Call("store", Look(name, pattern), until)
        return answer

    async def evict(self, name: str, token: int | None, until: float) -> Broken:
        """Take the lock away."""
        reply: Broken = await Call("store", Break(name, token), until)
        self._wake(reply.woken)
        return reply

    def forget(self, claim: Claim) -> None:
        """The claim waits no more, should anything wait for it."""
        signal = self.signals.pop(claim.holder, None)
        if signal is not None:
            signal.set()

    def disturb(self) -> None:
        """Wake every waiter, to look again."""
        self._wake(list(self.signals))

    def renewed_identity(self) -> None:
        """After a fork, nobody here waits and nobody listens."""
        self.signals = {}
        self.listening = Background()
