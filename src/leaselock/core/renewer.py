"""One process per client: renews every lease, tells of the lost, gives orphans back.

It sleeps until the earliest moment at which a hold needs it, and is woken only for an earlier
one; so a lock that is taken and released thousands of times between two of its turns costs it
nothing. The renewals that are due about the same time travel as one request.

A renewal has three outcomes (hazard C10): renewed; another's, which is loss at once; and no
answer, which is tried again until the time that was confirmed has passed, which is loss too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.core import timing
from leaselock.core.effects import FOREVER, CallUser, Sleep, Spawn, Wait
from leaselock.core.hold import Hold, State
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.core.backend import Claim
    from leaselock.core.hold_registry import HoldRegistry, PendingRelease

TOGETHER = 500
TAKEN = "the store says that somebody else holds it, or that it was broken by force"
RAN_OUT = "its time ran out before a renewal was confirmed"
FIXED = "its fixed lease is over"


class Renewer:
    """Looks after the holdings of one client."""

    def __init__(self, registry: HoldRegistry) -> None:
        self.registry = registry
        self.failures = 0

    async def start(self) -> None:
        """Start the keeper, unless it runs."""
        await self.registry.renewing.start(self.keep, "keeper")

    async def keep(self) -> None:
        """Keep until the client is closed."""
        while not self.registry.closed:
            await self._rest()
            await self.give_back()
            await self._renew()
            await self._tell_lost()

    async def _rest(self) -> None:
        registry = self.registry
        # A time once planned is kept, though the hold that wanted it may be gone: else every
        # acquire that follows a release would wake the keeper anew.
        promised = registry.planned if registry.planned > registry.env.now() else FOREVER
        registry.planned = min(self._next(), promised)
        await Wait(registry.changed, registry.planned)
        registry.changed.clear()

    def _next(self) -> float:
        due = self._due()
        if self.registry.pending_releases:
            return min(due, self._later() if self.failures else 0.0)
        return due

    def _due(self) -> float:
        return min((hold.next_check for hold in self.registry.held()), default=FOREVER)

    def _later(self) -> float:
        env = self.registry.env
        return env.now() + timing.pause(self.failures, env.random())

    async def give_back(self) -> None:
        """Give back what is nobody's. What gets no answer goes to the end of the line, and the
        rest waits for the next turn: a store that keeps silent must not keep us from our holds.
        """
        pending_releases = self.registry.pending_releases
        for release_later in list(pending_releases.values()):
            done = await self._give_back(release_later)
            left = pending_releases.pop(release_later.claim.id, None)
            if not done:
                pending_releases[release_later.claim.id] = left or release_later
                break

    async def _give_back(self, release_later: PendingRelease) -> bool:
        """Whether that is done with: it was answered, or a try that began too late failed, too."""
        now = self.registry.env.now()
        try:
            patience = min(self.registry.op_timeout, timing.PATIENCE_OF_A_TRY)
            until = min(now + patience, max(self._due(), now + timing.SHORTEST_TRY))
            await self.registry.backend.release(release_later.claim, tombstone=True, until=until)
        except StoreError:
            self.failures += 1
            return now >= release_later.until
        self.failures = 0
        return True

    async def _renew(self) -> None:
        now = self.registry.env.now()
        due = [h for h in self.registry.held() if self._is_due(h, now)]
        for start in range(0, len(due), TOGETHER):
            await self._renew_together(due[start : start + TOGETHER])

    def _is_due(self, hold: Hold, now: float) -> bool:
        if hold.valid_until >= hold.max_valid_until or not hold.is_valid(now):
            return False
        return hold.next_check <= now + timing.renew_early(self.registry.proof(hold.claim.lease))

    async def _renew_together(self, holds: list[Hold]) -> None:
        registry = self.registry
        asked = registry.env.now()
        shortest = min(hold.valid_until for hold in holds) - asked
        until = asked + min(registry.op_timeout, shortest / timing.RENEWALS_PER_LEASE)
        claims = [self._wanted(hold, asked) for hold in holds]
        try:
            answers = await registry.backend.renew(claims, until)
        except StoreError:
            self._try_again(holds)
            return
        unknown = [hold for hold, renewed in zip(holds, answers, strict=True) if renewed is None]
        self.failures = 0
        for hold, claim, renewed in zip(holds, claims, answers, strict=True):
            if renewed is not None:
                self._renewed(hold, asked, claim.lease) if renewed else self._taken(hold)
        if unknown:
            self._try_again(unknown)

    def _try_again(self, holds: list[Hold]) -> None:
        self.failures += 1
        for hold in holds:
            # One that was extended meanwhile to the end of a fixed lease needs no renewal more.
            again = hold.valid_until < hold.max_valid_until
            hold.next_check = min(hold.valid_until, self._later()) if again else hold.valid_until

    def _wanted(self, hold: Hold, asked: float) -> Claim:
        """What to ask for: of a fixed lease, no more than is left of it."""
        if hold.renew:
            return hold.claim
        registry = self.registry
        return hold.claim._replace(
            lease=timing.lease_until(asked, hold.max_valid_until, registry.drift, registry.margin)
        )

    def _renewed(self, hold: Hold, asked: float, lease: float) -> None:
        hold.confirmed(self.registry.proven(asked, lease))
        self.registry.schedule(hold, asked)

    def _taken(self, hold: Hold) -> None:
        # A release under way has made the answer old news.
        if hold.state is State.HELD:
            hold.lose(TAKEN)

    async def _tell_lost(self) -> None:
        registry, now = self.registry, self.registry.env.now()
        for hold in registry.held():
            if hold.state is State.HELD and now >= hold.valid_until:
                hold.lose(FIXED if hold.valid_until >= hold.max_valid_until else RAN_OUT)
            if hold.state is State.LOST:
                registry.dismiss(hold)
                registry.bereaved += hold.bereaved()
                self._let_go(hold)
        while registry.bereaved:
            await Spawn(tell(*registry.bereaved.pop(0)), "lost")

    def _let_go(self, hold: Hold) -> None:
        # It ends with its session, which may be found again; but nobody believes in it any more.
        if self.registry.backend.capabilities.session_timeout < FOREVER:
            self.registry.release_later(hold.claim)

    async def finish(self, until: float) -> None:
        """Give everything back, as far as the store answers before *until*; the client closes."""
        registry = self.registry
        for hold in registry.held():
            if hold.lose("the client was closed") and hold.owned:
                registry.release_later(hold.claim)
            registry.remove(hold)
        while registry.pending_releases and registry.env.now() < until:
            await self.give_back()
            if registry.pending_releases:
                await Sleep(min(until, self._later()))


async def tell(callback: Callable[[Any], object], lease: object) -> None:
    """Tell one who asked to be told of a loss. Each by itself: one that takes its time, or ends its
    thread or task, keeps no other from being told.
    """
    await CallUser(callback, lease)
