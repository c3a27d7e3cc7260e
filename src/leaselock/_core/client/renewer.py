"""The renewer: one operation per client and protocol, which does all that is due about its claims.
It renews the holds, has the losses reported, and ends the rows that nothing else ends
(`unfinished`).

It sleeps until the earliest time at which a hold needs it, and is woken only for an earlier one. So
a lock that is acquired and released thousands of times within this time costs it nothing. Renewals
that are due at about the same time are sent as one request.

A renewal has three outcomes (hazard C10). The hold is renewed; or the store says that it is gone,
and it is lost at once; or there is no answer, and the renewal is repeated until the hold is not
valid any more, and then it is lost, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.client import timing, validity
from leaselock._core.client.hold import Hold, State
from leaselock._core.client.unfinished import Unfinished
from leaselock._core.contract.backend import Renew
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.contract.backend import Claim

# How many renewals are sent as one request.
BATCH = 500


class Renewer:
    """Renews the holds of one client."""

    def __init__(self, registry: ClaimRegistry) -> None:
        self.registry = registry
        self.unfinished = Unfinished(registry)
        # How often in a row a renewal was not answered.
        self.failures = 0

    async def start(self) -> None:
        """Start the renewer, unless it runs."""
        await self.registry.renewing.start(self.keep, "renewer")

    async def keep(self) -> None:
        """Run until the client is closed."""
        registry, unfinished = self.registry, self.unfinished
        while not registry.closed:
            await self._rest()
            if registry.closed:
                return  # the closing thread does the rest, as an ending interpreter starts no other
            # A store that does not answer a release must not delay the report of a loss.
            unfinished.look()
            await registry.notices.start()
            await unfinished.late.release(self._due())
            await unfinished.late.convert(self._due())
            await self._renew()

    async def _rest(self) -> None:
        registry = self.registry
        # Keep a planned time even if its hold is gone: otherwise every acquire after a release
        # would wake the renewer.
        promised = registry.planned if registry.planned > registry.env.now() else FOREVER
        others = min(self.unfinished.late.next_release(), registry.notices.start_at, promised)
        registry.planned = min(self._due(), others)
        await registry.backend.wait_and_listen(registry.changed, registry.planned)
        registry.changed.clear()

    def _due(self) -> float:
        """When a row needs the renewer, except for its release."""
        table = list(self.registry.table.values())
        return min(self._danger(), min(map(Hold.due_at, table), default=FOREVER))

    def _danger(self) -> float:
        """When the next callback for a lease in danger is due."""
        holds = self.registry.with_danger_callbacks
        return min((hold.danger_at() for hold in holds), default=FOREVER)

    # --- renewals ---------------------------------------------------------------------------------

    async def _renew(self) -> None:
        now = self.registry.env.now()
        due = [hold for hold in self.registry.held() if self._is_due(hold, now)]
        before = self.failures
        for start in range(0, len(due), BATCH):
            await self._renew_batch(due[start : start + BATCH])
        if due and self.failures == before:
            self.failures = 0

    def _is_due(self, hold: Hold, now: float) -> bool:
        # A renewal that failed waits for its pause: the renewer is woken for other reasons, too.
        # One that confirms a hand-off is left out for a hold that ends before it is due.
        early = 0.0
        if not (hold.retrying or hold.provisional):
            early = validity.renew_early(self.registry.backend.capabilities, hold.claim.lease)
        if hold.next_check > now + early:
            return False
        return hold.valid_until < hold.max_valid_until and hold.is_valid(now)

    async def _renew_batch(self, holds: list[Hold]) -> None:
        registry = self.registry
        sent_at = registry.env.now()
        shortest = min(hold.valid_until for hold in holds) - sent_at
        until = sent_at + min(registry.op_timeout, shortest / validity.RENEWALS_PER_LEASE)
        # A store that does not answer must not delay the callbacks for a lease in danger.
        until = min(until, max(self._danger(), (sent_at + until) / 2))
        claims = [self._wanted(hold, sent_at) for hold in holds]
        try:
            answers = await registry.backend.request(Renew(claims), until)
        except StoreError as error:
            self._try_again(holds)
            for hold in holds:
                hold.failure = str(error)
            registry.notices.add_events("renewal_failed", holds, str(error))
            return
        known = list(zip(holds, claims, answers, strict=True))
        registry.notices.add_events("renewed", [hold for hold, _, renewed in known if renewed])
        for hold, claim, renewed in known:
            if renewed:
                self._renewed(hold, sent_at, claim.lease)
        if unknown := [hold for hold, _, renewed in known if renewed is None]:
            self._try_again(unknown)
        if taken := [hold for hold, _, renewed in known if renewed is False]:
            await self._taken(taken)

    def _try_again(self, holds: list[Hold]) -> None:
        """Repeat the renewal after a pause, as one request. Towards the end of a lease the pauses
        shrink with the time that is left, so that a store that returns is asked in time.
        """
        self.failures += 1
        env = self.registry.env
        now = env.now()
        left = min(hold.valid_until for hold in holds) - now
        pause = timing.pause(self.failures, env.random())
        pause = max(min(pause, left / validity.RENEWALS_PER_LEASE), timing.RENEWAL_PAUSE)
        for hold in holds:
            # A hold that was extended to the end of its fixed lease meanwhile is not renewed again.
            final = hold.valid_until >= hold.max_valid_until
            hold.next_check = hold.valid_until if final else min(hold.valid_until, now + pause)
            hold.retrying = True

    def _wanted(self, hold: Hold, sent_at: float) -> Claim:
        """The claim to renew: of a fixed lease, and near the end of *max_hold*, what is left."""
        can = self.registry.backend.capabilities
        left = validity.lease_for(can, sent_at, hold.max_valid_until)
        if hold.renew and left >= hold.claim.lease:
            return hold.claim
        return hold.claim._replace(lease=left)

    def _renewed(self, hold: Hold, sent_at: float, lease: float) -> None:
        hold.confirmed(validity.valid_until(self.registry.backend.capabilities, sent_at, lease))
        hold.retrying = False
        self.registry.schedule(hold, sent_at)

    async def _taken(self, holds: list[Hold]) -> None:
        from leaselock._core.client import break_notice  # loaded where it is used

        # If its time has run out meanwhile, that is the reason. While a hold is being released the
        # answer is out of date.
        now = self.registry.env.now()
        for hold in holds:
            hold.expire(now)
        held = [hold for hold in holds if hold.state is State.HELD and hold.has_lease()]
        taken = set(holds)
        others = [hold.next_check for hold in self.registry.held() if hold not in taken]
        free_until = min([self._danger(), *others])
        await break_notice.lose(self.registry, held, until=free_until)
