"""The leases of holds that end with a session of their client.

Such a hold does not end by itself when its lease is over. Invariant: no hold lasts longer than the
lease of its claim. While the session lives, the client ends the hold, in the background; if the
client cannot do that any more, the server ends its session.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from leaselock._core.contract.backend import Backend
from leaselock._core.contract.background import Background
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.contract.backend import Capabilities, Claim


class SessionLeases(Backend):
    """A backend with a `Capabilities.session_timeout`, which ends the leases that are over."""

    def __init__(self, capabilities: Capabilities, now: Callable[[], float]) -> None:
        super().__init__(capabilities)
        self.now = now
        self.reset_leases()

    def reset_leases(self) -> None:
        """Begin without holds."""
        # By the id of the claim.
        self.leases: dict[str, tuple[float, Claim]] = {}
        self.background = Background()
        # Until when the background operation waits, at the longest.
        self.planned = FOREVER

    # --- a subclass calls these

    def begin_lease(self, claim: Claim) -> None:
        """The claim holds from now on, for its lease. `plan` follows."""
        self.leases[claim.id] = (self.now() + claim.lease, claim)

    def extend_lease(self, claim: Claim) -> None:
        """The hold was renewed just now."""
        ends, _ = self.leases[claim.id]
        self.leases[claim.id] = (max(ends, self.now() + claim.lease), claim)

    def plan(self, claim: Claim, idle: float = FOREVER) -> None:
        """Let the background operation look at the end of the claim's lease; at *idle*, if it has
        none.
        """
        ends, _ = self.leases.get(claim.id, (idle, claim))
        if self.background.running and ends < self.planned:
            self.planned = ends
            self.end_wait(claim)

    async def end_leases(self) -> None:
        """Handle events, and end the leases that are over, until the store refuses to wait: the
        client was closed, or the server does not accept it. It runs in the background.
        """
        while True:
            try:
                other = await self.work()
                ends = min((ends for ends, _ in self.leases.values()), default=FOREVER)
                self.planned = min(ends, other)
                await self.await_events(self.planned)
            except StoreError:
                return
            now = self.now()
            for ends, claim in list(self.leases.values()):
                if ends <= now:
                    # It does not hold from this step on, whichever replies are still to come.
                    del self.leases[claim.id]
                    self.end_hold(claim)

    # --- a subclass implements these

    @abc.abstractmethod
    async def work(self) -> float:
        """Do what is due besides the leases, and return when something is due again."""

    @abc.abstractmethod
    async def await_events(self, until: float) -> None:
        """Wait for events until *until* or `end_wait`, and handle them: report losses."""

    @abc.abstractmethod
    def end_wait(self, claim: Claim) -> None:
        """Let `await_events` return, because the end of this claim's lease is before its end."""

    @abc.abstractmethod
    def end_hold(self, claim: Claim) -> None:
        """End a hold whose lease is over. It may not wait for a server."""
