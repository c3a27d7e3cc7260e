"""The turn of `once` that only success uses up.

The lease begins without a period: when it ends, by a release, a loss or the death of its client,
the next one may have the turn. A body that ends without an exception has the lock kept taken for
the rest of the period, before its lease is released: the claim asks again, with `min_hold`, and a
store grants a repeated request the same hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.client.hold import TAKEN
from leaselock._core.client.timing import Retry, concerning
from leaselock._core.contract.backend import Grant
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.contract.backend import Busy, Claim, Mismatch

NOT_USED_UP = "the store has not confirmed that its work is done: the turn is given back"
# Seconds before the end of a period of the clock in which a turn is not used up any more: the
# request might be carried out in the next one.
SHORTEST_REST = 0.1


class Turn:
    """A turn that is used up by success."""

    def __init__(self, period: float, *, aligned: bool) -> None:
        self.period = period
        self.aligned = aligned

    async def use_up(self, handle: LeaseHandle) -> None:
        """Keep the lock taken for the rest of the period. LeaseLost if the store does not confirm
        it: then the turn is given back.
        """
        hold, registry = handle.hold, handle.registry
        hold.check(registry.env.now(), registry.store)
        try:
            claim = await self._claim(registry, hold)
            if claim is None:
                return  # the period is over
            reply = await _ask(registry, hold, claim)
        except StoreError as failed:
            hold.lose(NOT_USED_UP)
            raise handle.lost_error() from failed
        if not isinstance(reply, Grant) or reply.token != hold.token:
            hold.lose(TAKEN)
            raise handle.lost_error()
        hold.claim = claim

    async def _claim(self, registry: ClaimRegistry, hold: Hold) -> Claim | None:
        """The claim, with what is left of the period; None if nothing is left."""
        claim, passed = hold.claim, registry.env.now() - hold.began
        if not self.aligned:
            rest = self.period - passed
            return claim._replace(min_hold=rest) if rest > 0.0 else None
        # The store knows the end of its period, unless that has passed already.
        (state,) = await registry.inspect(claim.name, "*")
        own = [held.record for held in state.holds if held.record.id == claim.id]
        since = own[0].since if own else registry.env.wall() - passed
        rest = self.period - since % self.period - passed
        if rest <= SHORTEST_REST:
            return None
        return claim._replace(min_hold=self.period, aligned=True)


async def _ask(registry: ClaimRegistry, hold: Hold, claim: Claim) -> Grant | Busy | Mismatch:
    env, op_timeout = registry.env, registry.op_timeout
    retry = Retry(env, op_timeout, min(env.now() + op_timeout, hold.valid_until))
    with concerning(claim.name):
        return await retry.until_answered(
            lambda until: registry.backend.acquire(claim, wait=False, until=until)
        )
