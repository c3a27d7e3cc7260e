"""Requests that the renewer sends for operations that have ended: releases of claims that nothing
has in hand, and conversions whose outcome is unknown. Each is repeated, with growing pauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.client import conversion, timing
from leaselock._core.contract.effects import FOREVER, Sleep
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold


class LateRequests:
    """Those of one client."""

    def __init__(self, registry: ClaimRegistry) -> None:
        self.registry = registry
        # How often in a row a release, and a conversion, was not answered.
        self.failed_releases = self.failed_conversions = 0

    # --- releases ---------------------------------------------------------------------------------

    def next_release(self) -> float:
        """When to send the next release."""
        pending = self.registry.pending()
        due = min(map(self._release_from, pending), default=FOREVER)
        return max(due, self._retry_at()) if self.failed_releases and pending else due

    def _release_from(self, hold: Hold) -> float:
        waits = hold.dropped or self.registry.notices.running
        return hold.release_from if waits else 0.0

    def _retry_at(self) -> float:
        env = self.registry.env
        return env.now() + timing.pause(self.failed_releases, env.random())

    async def release(self, free_until: float) -> None:
        """Send the releases that are due, each for as long as the renewer is free.

        The first one that is not answered goes to the end, and the rest waits for the next turn:
        a silent store must not keep the renewer from its holds.
        """
        registry, now = self.registry, self.registry.env.now()
        for hold in [each for each in registry.pending() if self._release_from(each) <= now]:
            if await self._is_released(hold, free_until):
                registry.remove(hold)
            elif registry.table.pop(hold.claim.id, None) is not None:
                registry.table[hold.claim.id] = hold
                break

    async def _is_released(self, hold: Hold, free_until: float) -> bool:
        """Send one; return whether it is done: it was answered, or its last try failed."""
        registry, now = self.registry, self.registry.env.now()
        until = timing.late_until(now, free_until, registry.op_timeout)
        claim = hold.claim if hold.token else hold.claim.unused()
        try:
            await registry.backend.release(claim, tombstone=True, until=until)
        except StoreError:
            self.failed_releases += 1
            return now >= hold.release_until
        self.failed_releases = 0
        return True

    async def release_all(self, until: float) -> None:
        """Send every release, again and again until it is answered or *until*."""
        await self.release(FOREVER)
        while self.registry.pending() and self.registry.env.now() < until:
            await Sleep(min(until, self._retry_at()))
            await self.release(FOREVER)

    # --- conversions ------------------------------------------------------------------------------

    async def convert(self, free_until: float) -> None:
        """Repeat the conversions that are due, each for as long as the renewer is free. If one is
        not answered, the rest waits for the next turn.
        """
        env = self.registry.env
        for hold in self.registry.held():
            if hold.next_conversion() <= env.now() and (pending := hold.pending_conversion):
                if await conversion.repeat(self.registry, hold, pending, free_until):
                    self.failed_conversions = 0
                else:
                    self.failed_conversions += 1
                    pause = timing.pause(self.failed_conversions, env.random())
                    pending.repeat_at = env.now() + pause
                    break
