"""One process per client: renews every lease, tells of the lost, gives orphans back.

It sleeps until the earliest moment at which a hold needs it, and is woken only for an earlier
one; so a lock that is taken and released thousands of times between two of its turns costs it
nothing. The renewals that are due about the same time travel as one request.

A renewal has three outcomes (hazard C10): renewed; another's, which is loss at once; and no
answer, which is tried again until the time that was confirmed has passed, which is loss too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.core import pace
from leaselock.core.effects import FOREVER, Sleep, Spawn, Tell, Wait
from leaselock.core.lease import Hold, State
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.core.backend import Claim
    from leaselock.core.holdings import Holdings, Orphan

TOGETHER = 500
TAKEN = "the store says that somebody else holds it, or that it was broken by force"
RAN_OUT = "its time ran out before a renewal was confirmed"
FIXED = "its fixed lease is over"


class Keeper:
    """Looks after the holdings of one client."""

    def __init__(self, books: Holdings) -> None:
        self.books = books
        self.failures = 0

    async def start(self) -> None:
        """Start the keeper, unless it runs."""
        await self.books.keeping.start(self.keep, "keeper")

    async def keep(self) -> None:
        """Keep until the client is closed."""
        while not self.books.closed:
            await self._rest()
            await self.give_back()
            await self._renew()
            await self._tell_lost()

    async def _rest(self) -> None:
        books = self.books
        # A time once planned is kept, though the hold that wanted it may be gone: else every
        # acquire that follows a release would wake the keeper anew.
        promised = books.planned if books.planned > books.env.now() else FOREVER
        books.planned = min(self._next(), promised)
        await Wait(books.changed, books.planned)
        books.changed.clear()

    def _next(self) -> float:
        due = self._due()
        if self.books.orphans:
            return min(due, self._later() if self.failures else 0.0)
        return due

    def _due(self) -> float:
        return min((hold.due for hold in self.books.held()), default=FOREVER)

    def _later(self) -> float:
        env = self.books.env
        return env.now() + pace.pause(self.failures, env.random())

    async def give_back(self) -> None:
        """Give back what is nobody's. What gets no answer goes to the end of the line, and the
        rest waits for the next turn: a store that keeps silent must not keep us from our holds.
        """
        orphans = self.books.orphans
        for orphan in list(orphans.values()):
            done = await self._give_back(orphan)
            left = orphans.pop(orphan.claim.holder, None)
            if not done:
                orphans[orphan.claim.holder] = left or orphan
                break

    async def _give_back(self, orphan: Orphan) -> bool:
        """Whether that is done with: it was answered, or a try that began too late failed, too."""
        now = self.books.env.now()
        try:
            patience = min(self.books.patience, pace.PATIENCE_OF_A_TRY)
            until = min(now + patience, max(self._due(), now + pace.SHORTEST_TRY))
            await self.books.backend.leave(orphan.claim, bury=True, until=until)
        except StoreError:
            self.failures += 1
            return now >= orphan.until
        self.failures = 0
        return True

    async def _renew(self) -> None:
        now = self.books.env.now()
        due = [h for h in self.books.held() if self._is_due(h, now)]
        for start in range(0, len(due), TOGETHER):
            await self._renew_together(due[start : start + TOGETHER])

    def _is_due(self, hold: Hold, now: float) -> bool:
        if hold.until >= hold.ends or not hold.believed(now):
            return False
        return hold.due <= now + pace.renew_early(self.books.proof(hold.claim.lease))

    async def _renew_together(self, holds: list[Hold]) -> None:
        books = self.books
        asked = books.env.now()
        shortest = min(hold.until for hold in holds) - asked
        until = asked + min(books.patience, shortest / pace.RENEWALS_PER_LEASE)
        claims = [self._wanted(hold, asked) for hold in holds]
        try:
            answers = await books.backend.renew(claims, until)
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
            again = hold.until < hold.ends
            hold.due = min(hold.until, self._later()) if again else hold.until

    def _wanted(self, hold: Hold, asked: float) -> Claim:
        """What to ask for: of a fixed lease, no more than is left of it."""
        if hold.renew:
            return hold.claim
        books = self.books
        return hold.claim._replace(
            lease=pace.lease_until(asked, hold.ends, books.drift, books.margin)
        )

    def _renewed(self, hold: Hold, asked: float, lease: float) -> None:
        hold.confirmed(self.books.proven(asked, lease))
        self.books.schedule(hold, asked)

    def _taken(self, hold: Hold) -> None:
        # A release under way has made the answer old news.
        if hold.state is State.HELD:
            hold.lose(TAKEN)

    async def _tell_lost(self) -> None:
        books, now = self.books, self.books.env.now()
        for hold in books.held():
            if hold.state is State.HELD and now >= hold.until:
                hold.lose(FIXED if hold.until >= hold.ends else RAN_OUT)
            if hold.state is State.LOST:
                books.dismiss(hold)
                books.bereaved += hold.bereaved()
                self._let_go(hold)
        while books.bereaved:
            await Spawn(tell(*books.bereaved.pop(0)), "lost")

    def _let_go(self, hold: Hold) -> None:
        # It ends with its session, which may be found again; but nobody believes in it any more.
        if self.books.backend.capabilities.session < FOREVER:
            self.books.orphan(hold.claim)

    async def finish(self, until: float) -> None:
        """Give everything back, as far as the store answers before *until*; the client closes."""
        books = self.books
        for hold in books.held():
            if hold.lose("the client was closed") and hold.ours:
                books.orphan(hold.claim)
            books.remove(hold)
        while books.orphans and books.env.now() < until:
            await self.give_back()
            if books.orphans:
                await Sleep(min(until, self._later()))


async def tell(callback: Callable[[Any], object], lease: object) -> None:
    """Tell one who asked to be told of a loss. Each by itself: one that takes its time, or ends its
    thread or task, keeps no other from being told.
    """
    await Tell(callback, lease)
