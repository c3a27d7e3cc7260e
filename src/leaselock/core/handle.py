"""One acquisition: what the user has in hand. Several may share one hold, by nesting."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from leaselock.core import pace
from leaselock.core.effects import Guard, Sleep
from leaselock.core.keeper import RAN_OUT, TAKEN
from leaselock.core.lease import Hold, State
from leaselock.core.names import LONGEST_LEASE, SHORTEST_LEASE, checked_seconds
from leaselock.errors import LeaseLost, NotHeld, Refused, StoreError, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.core.backend import Tie
    from leaselock.core.holdings import Holdings

NOT_OURS = "when it was released, the store did not have it as ours any more"


def doubt(error: StoreError) -> Unknown:
    """What to tell when an earlier question had no answer: a refusal says nothing of that one."""
    if isinstance(error, Unknown):
        return error
    return Unknown(f"{error} (and an earlier question was not answered)")


class Handle:
    """A grant in use."""

    __slots__ = ("__weakref__", "books", "guard", "hold", "released")

    def __init__(self, books: Holdings, hold: Hold) -> None:
        self.books = books
        self.hold = hold
        self.guard: Guard | None = None
        self.released = False

    def ensure(self) -> None:
        """Raise LeaseLost, or NotHeld after the release, unless the lease can be believed."""
        if self.released:
            raise NotHeld(self.hold.claim.name, f"{self.hold.claim.name!r} was released already")
        self.hold.check(self.books.env.now())

    def remaining(self) -> float:
        """Seconds for which the lease can be believed."""
        return 0.0 if self.released else self.hold.remaining(self.books.env.now())

    def lost(self) -> bool:
        """Whether the lease was lost; a released one was not."""
        hold, now = self.hold, self.books.env.now()
        return not self.released and not hold.believed(now)

    def watch_over(self, guard: Guard | None) -> None:
        """Have the body that *guard* knows of stopped when the lease is lost."""
        if guard is not None:
            self.guard = guard
            self.hold.guards.append(guard)

    def unguard(self, exception: BaseException | None) -> bool:
        """Stop guarding the body; was *exception* our own interruption?"""
        guard, self.guard = self.guard, None
        if guard is None:
            return False
        if guard in self.hold.guards:
            self.hold.guards.remove(guard)
        return guard.settle(exception)

    async def release(self) -> None:
        """Give back this acquisition; the last one frees the lock."""
        hold, books = self.hold, self.books
        now = books.env.now()
        if not self._put_down():
            hold.check(now)
            return
        books.remove(hold)
        if hold.believed(now):
            hold.step("release")
        if books.closed or hold.claim.client != books.client:
            hold.lose("its client was closed")
        elif await self._leave(hold, now):
            hold.step("done")
        else:
            hold.lose(NOT_OURS)
        if hold.state is not State.FREE:
            hold.lose(RAN_OUT)
            raise self._lost()

    def drop(self) -> None:
        """Give back this acquisition where nothing can be awaited: the keeper does it."""
        if self._put_down():
            self.books.remove(self.hold)
            self.hold.step("release")
            self.books.orphan(self.hold.claim)

    def _put_down(self) -> bool:
        """This handle is done with; was it the last of its hold?"""
        name = self.hold.claim.name
        if self.released:
            raise NotHeld(name, f"{name!r} was released already")
        self.released = True
        self.hold.depth -= 1
        return not self.hold.depth

    def _lost(self) -> LeaseLost:
        self.books.mourn(self.hold)
        return self.hold.lost()

    async def _leave(self, hold: Hold, now: float) -> bool:
        """Leave until answered. A repeated question that finds nothing was answered before."""
        books = self.books
        env, crowd, give_up = books.env, books.crowd, now + books.patience
        tries = 0
        crowd.active += 1
        try:
            while True:
                try:
                    until = pace.ask_again_by(now, give_up)
                    was_held = await books.backend.leave(
                        hold.claim, bury=hold.doubtful, until=until
                    )
                    return was_held or tries > 0
                except StoreError as error:
                    if not tries and isinstance(error, Refused):
                        raise
                    tries += 1
                    if env.now() >= give_up:
                        raise doubt(error) from error.__cause__
                await Sleep(min(give_up, env.now() + pace.pause(tries, env.random())))
                now = env.now()
        except BaseException:
            books.orphan(hold.claim)
            raise
        finally:
            crowd.exit()

    async def extend(self, seconds: object) -> None:
        """Have the lease end no sooner than *seconds* from now, once; renewal goes on."""
        length = checked_seconds(seconds, "extend", least=SHORTEST_LEASE, most=LONGEST_LEASE)
        self.ensure()
        books, hold = self.books, self.hold
        asked = books.env.now()
        until = min(hold.until, asked + books.patience)
        answers = await books.backend.renew([hold.claim._replace(lease=length)], until)
        if answers[0] is None:
            raise Unknown(f"whether {hold.claim.name!r} is still held is not known: try again")
        if not answers[0]:
            hold.lose(TAKEN)
            raise self._lost()
        hold.ends = max(hold.ends, books.over(asked, length))
        hold.confirmed(books.proven(asked, length))
        hold.check(books.env.now())
        books.schedule(hold, asked)

    async def detach(self) -> None:
        """Leave the lock held for the rest of its lease, by whoever knows its token."""
        self.ensure()
        if self.hold.depth > 1:
            raise NotHeld(self.hold.claim.name, "a nested acquisition cannot be detached")
        if self.hold.brief:
            await self.extend(self.hold.claim.lease)
        await self._retie("lease")
        self.books.remove(self.hold)
        self.hold.step("detach")
        self.released = True

    async def bequeath(self) -> tuple[int, ...]:
        """Let the lock live as long as any process that has the descriptors returned."""
        self.ensure()
        if not self.books.backend.capabilities.bequest:
            return ()
        return await self._retie("life")

    async def _retie(self, tie: Tie) -> tuple[int, ...]:
        books, hold = self.books, self.hold
        until = min(hold.until, books.env.now() + books.patience)
        reply = await books.backend.retie(hold.claim, tie, until)
        if not reply.held:
            hold.lose(TAKEN)
            raise self._lost()
        return reply.descriptors

    def on_lost(
        self, callback: Callable[[Any], object], lease: object, wrap: Callable[[Any], object]
    ) -> None:
        """Have *callback* called with the lease when it is lost; soon, if it is already."""
        mourner = (callback, weakref.ref(lease), weakref.ref(self), wrap)
        self.hold.mourners.append(mourner)
        if self.lost():
            self.hold.lose(RAN_OUT)
            self.books.mourn(self.hold)
