"""One acquisition: what the user has in hand. Several may share one hold, by nesting."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from leaselock.core import timing
from leaselock.core.effects import Guard, Sleep
from leaselock.core.hold import Hold, State
from leaselock.core.renewer import RAN_OUT, TAKEN
from leaselock.core.validation import LONGEST_LEASE, SHORTEST_LEASE, checked_seconds
from leaselock.errors import LeaseLost, NotApplied, NotHeld, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.core.backend import Lifetime
    from leaselock.core.hold_registry import HoldRegistry

NOT_OURS = "when it was released, the store did not have it as ours any more"


def doubt(error: StoreError) -> OutcomeUnknown:
    """What to tell when an earlier question had no answer: a refusal says nothing of that one."""
    if isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(f"{error} (and an earlier question was not answered)")


class LeaseHandle:
    """A grant in use."""

    __slots__ = ("__weakref__", "guard", "hold", "registry", "released")

    def __init__(self, registry: HoldRegistry, hold: Hold) -> None:
        self.registry = registry
        self.hold = hold
        self.guard: Guard | None = None
        self.released = False

    def ensure(self) -> None:
        """Raise LeaseLost, or NotHeld after the release, unless the lease can be believed."""
        if self.released:
            raise NotHeld(self.hold.claim.name, f"{self.hold.claim.name!r} was released already")
        self.hold.check(self.registry.env.now())

    def remaining(self) -> float:
        """Seconds for which the lease can be believed."""
        return 0.0 if self.released else self.hold.remaining(self.registry.env.now())

    def lost(self) -> bool:
        """Whether the lease was lost; a released one was not."""
        hold, now = self.hold, self.registry.env.now()
        return not self.released and not hold.is_valid(now)

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
        hold, registry = self.hold, self.registry
        now = registry.env.now()
        if not self._put_down():
            hold.check(now)
            return
        registry.remove(hold)
        if hold.is_valid(now):
            hold.step("release")
        if registry.closed or hold.claim.client != registry.client:
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
            self.registry.remove(self.hold)
            self.hold.step("release")
            self.registry.release_later(self.hold.claim)

    def _put_down(self) -> bool:
        """This handle is done with; was it the last of its hold?"""
        name = self.hold.claim.name
        if self.released:
            raise NotHeld(name, f"{name!r} was released already")
        self.released = True
        self.hold.depth -= 1
        return not self.hold.depth

    def _lost(self) -> LeaseLost:
        self.registry.notify_lost(self.hold)
        return self.hold.lost()

    async def _leave(self, hold: Hold, now: float) -> bool:
        """Leave until answered. A repeated question that finds nothing was answered before."""
        registry = self.registry
        env, in_flight, give_up = registry.env, registry.in_flight, now + registry.op_timeout
        tries = 0
        in_flight.active += 1
        try:
            while True:
                try:
                    until = timing.ask_again_by(now, give_up)
                    was_held = await registry.backend.release(
                        hold.claim, tombstone=hold.uncertain, until=until
                    )
                    return was_held or tries > 0
                except StoreError as error:
                    if not tries and isinstance(error, NotApplied):
                        raise
                    tries += 1
                    if env.now() >= give_up:
                        raise doubt(error) from error.__cause__
                await Sleep(min(give_up, env.now() + timing.pause(tries, env.random())))
                now = env.now()
        except BaseException:
            registry.release_later(hold.claim)
            raise
        finally:
            in_flight.exit()

    async def extend(self, seconds: object) -> None:
        """Have the lease end no sooner than *seconds* from now, once; renewal goes on."""
        length = checked_seconds(seconds, "extend", least=SHORTEST_LEASE, most=LONGEST_LEASE)
        self.ensure()
        registry, hold = self.registry, self.hold
        asked = registry.env.now()
        until = min(hold.valid_until, asked + registry.op_timeout)
        answers = await registry.backend.renew([hold.claim._replace(lease=length)], until)
        if answers[0] is None:
            raise OutcomeUnknown(
                f"whether {hold.claim.name!r} is still held is not known: try again"
            )
        if not answers[0]:
            hold.lose(TAKEN)
            raise self._lost()
        hold.max_valid_until = max(hold.max_valid_until, registry.over(asked, length))
        hold.confirmed(registry.proven(asked, length))
        hold.check(registry.env.now())
        registry.schedule(hold, asked)

    async def detach(self) -> None:
        """Leave the lock held for the rest of its lease, by whoever knows its token."""
        self.ensure()
        if self.hold.depth > 1:
            raise NotHeld(self.hold.claim.name, "a nested acquisition cannot be detached")
        if self.hold.provisional:
            await self.extend(self.hold.claim.lease)
        await self._retie("lease")
        self.registry.remove(self.hold)
        self.hold.step("detach")
        self.released = True

    async def make_inheritable(self) -> tuple[int, ...]:
        """Let the lock live as long as any process that has the descriptors returned."""
        self.ensure()
        if not self.registry.backend.capabilities.inheritable:
            return ()
        return await self._retie("client")

    async def _retie(self, tie: Lifetime) -> tuple[int, ...]:
        registry, hold = self.registry, self.hold
        until = min(hold.valid_until, registry.env.now() + registry.op_timeout)
        reply = await registry.backend.set_lifetime(hold.claim, tie, until)
        if not reply.held:
            hold.lose(TAKEN)
            raise self._lost()
        return reply.descriptors

    def on_lost(
        self, callback: Callable[[Any], object], lease: object, wrap: Callable[[Any], object]
    ) -> None:
        """Have *callback* called with the lease when it is lost; soon, if it is already."""
        mourner = (callback, weakref.ref(lease), weakref.ref(self), wrap)
        self.hold.loss_callbacks.append(mourner)
        if self.lost():
            self.hold.lose(RAN_OUT)
            self.registry.notify_lost(self.hold)
