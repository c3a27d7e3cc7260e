"""One acquisition, as the user has it in hand. Nested acquisitions share one hold."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from leaselock._core import conversion, timing, validity
from leaselock._core.backend import Renew, SetLifetime
from leaselock._core.effects import FOREVER
from leaselock._core.events import hold_event
from leaselock._core.hold import (
    NOT_OURS,
    RAN_OUT,
    TAKEN,
    UNCONFIRMED,
    Hold,
    State,
    calls,
    no_owner,
)
from leaselock._core.short_operation import UNFINISHED, ShortOperation
from leaselock._core.timing import Retry
from leaselock._core.validation import (
    LONGEST_LEASE,
    SHORTEST_LEASE,
    checked_seconds,
    checked_timeout,
)
from leaselock.errors import (
    LeaselockError,
    LeaseLost,
    NotHeld,
    OutcomeUnknown,
    StoreError,
    WouldDeadlock,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.backend import Lifetime, Mode
    from leaselock._core.effects import BodyInterrupter, Call, Owner
    from leaselock._core.hold import QueueObserver
    from leaselock._core.hold_registry import HoldRegistry, InFlight
    from leaselock._core.short_operation import Unfinished


# Seconds before the end of a lease, for `on_danger`.
SHORTEST_MARGIN = 0.01

H = TypeVar("H")
L = TypeVar("L")


def if_granted(handle: H | None, wrap: Callable[[H], L]) -> L | None:
    """What *wrap* makes of the handle of a grant; None if there was no grant."""
    return None if handle is None else wrap(handle)


class LockObject(Protocol):
    """What a lease needs of the lock object through which it was acquired."""

    leases: dict[LeaseHandle, None]
    waiting: set[Any]
    """The acquisitions and upgrades that `cancel` ends."""


def no_lock() -> None:
    """The lock object of an adopted lease."""


class LeaseHandle:
    """One acquisition of a lock: it is released once."""

    # What most leases do not change is an attribute of the class: 2 % of a pair, with all of them.
    interrupter: BodyInterrupter | None = None
    released = False
    failed = False
    """Its release found that the lease was lost."""
    detached = False
    prolongs = False
    """It has a fixed lease renewed until its own release (`Hold.prolonged`)."""
    in_body = False
    """It is that of a body of `with` on the lock object."""
    body_key: object = None
    """Which one (`Mutex.enter`)."""
    owner: Callable[[], Owner | None] = staticmethod(no_owner)
    """Who has acquired it through the lock object."""

    def __init__(
        self, registry: HoldRegistry, hold: Hold, lock: Callable[[], LockObject | None] = no_lock
    ) -> None:
        self.registry = registry
        self.hold = hold
        # The lock object through which it was acquired.
        self.lock = lock
        # The mode of this lease; that of the hold is the strongest of its leases.
        self.mode = hold.modes[-1]

    def ensure(self) -> None:
        """Raise LeaseLost, or NotHeld after the release, unless the lease is valid."""
        if self.failed:
            raise self.hold.lost(self.registry.store)
        if self.released:
            raise NotHeld(self.hold.claim.name, f"{self.hold.claim.name!r} was released already")
        self.hold.check(self.registry.env.now(), self.registry.store)

    def remaining(self) -> float:
        """Seconds for which the lease stays valid without a renewal."""
        return 0.0 if self.released else self.hold.remaining(self.registry.env.now())

    def lost(self) -> bool:
        """Whether the lease was lost. One that was released in time was not."""
        return self.failed or not (self.released or self.hold.is_valid(self.registry.env.now()))

    def slot(self) -> int:
        """The lowest number of its permits; ValueError if they have none."""
        if not self.hold.slots:
            raise ValueError(
                f"the lease of {self.hold.claim.name!r} has no number: it is not one of a "
                "semaphore with numbered=True"
            )
        return self.hold.slots[0]

    def prolong(self) -> None:
        """Have a fixed lease renewed until the release of this one, which is nested in it."""
        hold = self.hold
        self.prolongs = True
        hold.prolong()
        # As if its last renewal had been confirmed in time: the next one may be due now.
        self.registry.schedule(hold, hold.valid_until - hold.claim.lease)

    def add_interrupter(self) -> None:
        """Interrupt the body that begins now when the lease is lost, where that is possible."""
        interrupter = self.interrupter = self.registry.env.body_interrupter()
        if interrupter is not None:
            self.hold.interrupters += (interrupter,)

    async def begin_body(self, lease: L) -> L:
        """Begin the body of a `with` on this lease."""
        self.ensure()
        if self.interrupter is None:
            self.add_interrupter()
        return lease

    async def end_body(self, exception: BaseException | None) -> None:
        """End it. The body may have released or detached the lease itself."""
        if not self.released:
            await self.leave(exception)
        elif self.interrupter is not None:
            self.finish_interrupter(self.interrupter, exception)

    def state(self) -> str:
        """What `repr` says of this lease."""
        if self.lost():
            return f"lost: {self.hold.reason or RAN_OUT}"
        if not self.released:
            if self.hold.is_unlocked:
                return "not locked: the store was out of reach"
            return f"held, {self.remaining():.0f} s remaining"
        return "detached" if self.detached else "released"

    async def leave(self, exception: BaseException | None) -> None:
        """End the body of a `with`. Its own *exception* is never replaced."""
        interrupted = False
        try:
            if (interrupter := self.interrupter) is not None:
                interrupted = self.finish_interrupter(interrupter, exception)
            if isinstance(exception, GeneratorExit):
                self.drop()  # the body was dropped: nothing can be awaited any more
            else:
                await self.release()
        except LeaselockError as error:
            if exception is None:
                raise
            if interrupted:
                raise error from error.__cause__ or exception
            exception.add_note(f"leaselock: {error}")

    def finish_interrupter(
        self, interrupter: BodyInterrupter, exception: BaseException | None
    ) -> bool:
        """Stop interrupting the body; return whether *exception* was our own interruption."""
        self.interrupter = None
        others = [other for other in self.hold.interrupters if other is not interrupter]
        self.hold.interrupters = tuple(others) if others else ()
        return interrupter.finish(exception)

    def release(self) -> Release:
        """Release this acquisition. The last one frees the lock.

        LeaseLost if the store has not confirmed that the lock was held until now, whatever the
        reason: its cause is the error of the store, if there was one.
        """
        return Release(self)

    def drop(self) -> None:
        """Release this acquisition where nothing can be awaited: through the renewer."""
        if self._let_go():
            self.registry.release_later(self.hold.claim)

    async def withdraw(self, until: float) -> None:
        """Release this acquisition, which its caller never saw: at once if the store answers before
        *until*, otherwise through the renewer.
        """
        registry, hold = self.registry, self.hold
        if not self.released and self._let_go():
            if registry.closed or registry.env.now() >= until:
                registry.release_later(hold.claim)
            else:
                await registry.withdraw(hold.claim, tombstone=hold.uncertain, until=until)

    def _let_go(self) -> bool:
        """End this acquisition; return whether its claim must be released. A conversion to a weaker
        mode is left to the renewer.
        """
        hold, registry = self.hold, self.registry
        if self.end() and not hold.is_unlocked:
            registry.remove(hold)
            hold.transition("release")
            return True
        if hold.state is State.HELD and (mode := self.weaker_mode()) is not None:
            conversion.convert_later(registry, hold, mode)
        return False

    def end(self) -> bool:
        """Mark this handle as released; return whether it was the last one of its hold."""
        name = self.hold.claim.name
        if self.released:
            raise NotHeld(name, f"{name!r} was released already")
        self._mark_released()
        self.hold.modes.remove(self.mode)
        if self.prolongs:
            self.hold.end_prolonging()
        if self.hold.upgrade is not None:
            self.registry.backend.wake([self.hold.claim.id])  # those that upgrade this lease
        if self.hold.is_unlocked:
            self.hold.transition("detach")  # there is nothing to release
        return not self.hold.modes

    def _mark_released(self) -> None:
        self.released = True
        lock = self.lock()
        if lock is not None and not self.in_body:
            lock.leases.pop(self, None)

    def weaker_mode(self) -> Mode | None:
        """The mode to convert the hold to, now that this lease has ended. None if it stays as it
        is: the tokens that a grant has reserved are for writers, and with `min_hold` no other
        client may have the lock for a while.
        """
        claim, left = self.hold.claim, conversion.strongest(self.hold.modes)
        keeps = left == claim.mode or claim.tokens > 1 or claim.min_hold > 0
        return None if keeps else left

    def lost_error(self) -> LeaseLost:
        """The error of a lease that was lost; the loss is reported."""
        self.failed = self.released
        self.registry.notify_lost(self.hold)
        return self.hold.lost(self.registry.store)

    async def extend(self, seconds: object) -> None:
        """Make the lease end no sooner than *seconds* from now, once. Renewal goes on."""
        length = checked_seconds(seconds, "extend", least=SHORTEST_LEASE, most=LONGEST_LEASE)
        self.ensure()
        if not self.hold.is_unlocked:
            await extend(self.registry, self.hold, length)

    async def upgrade(self, timeout: object) -> bool:
        """Make this lease exclusive; return whether that was so before *timeout* has passed."""
        limit = checked_timeout(timeout)
        self.ensure()
        hold, now = self.hold, self.registry.env.now()
        if hold.claim.mode == "permits":
            raise ValueError(
                f"{hold.claim.name!r} is a semaphore, whose permits cannot be upgraded; only a "
                "lease of .update of a read/write lock can"
            )
        if hold.claim.mode == "shared":
            raise WouldDeadlock(hold.claim.name, "exclusive")
        if hold.claim.mode == "update" and not hold.is_unlocked:
            deadline = FOREVER if limit is None else now + limit
            lock = self.lock()
            waiting = None if lock is None else lock.waiting
            done = await conversion.upgrade(
                self.registry, hold, deadline, waiting, lambda: self.released
            )
            self.ensure()  # another thread or task may have released it meanwhile
            if not done:
                return False
        hold.modes.remove(self.mode)
        hold.modes.append("exclusive")
        self.mode = "exclusive"
        return True

    async def detach(self) -> None:
        """Leave the lock held for the rest of its lease; its token is needed to adopt it."""
        self.ensure()
        if self.hold.is_unlocked:
            text = f"{self.hold.claim.name!r} is not locked: the store was out of reach"
            raise NotHeld(self.hold.claim.name, text)
        if self.hold.depth > 1:
            raise NotHeld(self.hold.claim.name, "a nested acquisition cannot be detached")
        if self.hold.provisional:
            await self.extend(self.hold.claim.lease)
        await self._set_lifetime("lease")
        self.registry.remove(self.hold)
        self.hold.transition("detach")
        self.detached = True
        self._mark_released()

    async def make_inheritable(self) -> tuple[int, ...]:
        """Let the lock live as long as any process that has the returned descriptors."""
        self.ensure()
        if self.hold.is_unlocked or not self.registry.backend.capabilities.inheritable:
            return ()
        return await self._set_lifetime("client")

    async def _set_lifetime(self, lifetime: Lifetime) -> tuple[int, ...]:
        registry, hold = self.registry, self.hold
        until = min(hold.valid_until, registry.env.now() + registry.op_timeout)
        reply = await registry.backend.request(SetLifetime(hold.claim, lifetime), until)
        if not reply.held:
            hold.lose(TAKEN)
            raise self.lost_error()
        return reply.descriptors

    def on_lost(
        self, callback: Callable[[Any], object], lease: object, wrap: Callable[[Any], object]
    ) -> None:
        """Call *callback* with the user's lease when it is lost; soon, if it already is.

        *wrap* makes a new lease of this handle, if the user has dropped that one by then.
        """
        known = (callback, weakref.ref(lease), weakref.ref(self), wrap)
        self.hold.loss_callbacks = [*self.hold.loss_callbacks, known]
        if self.lost():
            self.hold.lose(RAN_OUT)
            self.registry.notify_lost(self.hold)

    def contended(self) -> bool:
        """Whether others waited for the lock at the last look, which are repeated from now on."""
        if self.released or self.hold.is_unlocked or self.hold.state is not State.HELD:
            return False
        return self._observer().seen

    def on_contended(
        self, callback: Callable[[Any], object], lease: object, wrap: Callable[[Any], object]
    ) -> None:
        """Call *callback* with the user's lease whenever others begin to wait for the lock; soon,
        if one waits already.
        """
        if self.released or self.hold.is_unlocked:
            return
        observer = self._observer()
        known = (callback, weakref.ref(lease), weakref.ref(self), wrap)
        observer.callbacks.append(known)
        if observer.seen:
            self.registry.due_callbacks += calls([known])
            self.registry.wake_renewer(0.0)

    def _observer(self) -> QueueObserver:
        """What follows the queue of the lock, from now on if it has not begun."""
        hold, registry = self.hold, self.registry
        observer = hold.contention
        if observer is None:
            from leaselock._core.contention import Contention  # loaded where it is used

            observer = hold.contention = Contention(registry, hold)
            registry.due_observers.append(observer)
            registry.wake_renewer(0.0)
        return observer

    def on_danger(
        self,
        seconds: object,
        callback: Callable[[Any], object],
        lease: object,
        wrap: Callable[[Any], object],
    ) -> None:
        """Call *callback* once with the user's lease, when no more than *seconds* are left of it
        because it was not renewed; soon, if that is so already.
        """
        hold, registry = self.hold, self.registry
        most = hold.claim.lease
        if hold.renew:
            # It is renewed when a third has passed; the rest is for the request.
            most = validity.proof_interval(registry.backend.capabilities, most) / 2
        margin = checked_seconds(seconds, "seconds", least=SHORTEST_MARGIN, most=most)
        known = (callback, weakref.ref(lease), weakref.ref(self), wrap)
        registry.with_danger_callbacks.add(hold)
        hold.danger_callbacks = [*hold.danger_callbacks, (margin, known)]
        if hold.danger_at() < registry.planned:
            registry.wake_renewer(hold.danger_at())


class Release(ShortOperation[None]):
    """The end of one lease."""

    call: Call[Any] | None = None
    """The request of `begin`, until its reply."""
    ended = False
    """The lease has ended; the rest concerns its hold."""
    last = False
    """It was the last lease of the hold."""
    in_flight: InFlight | None = None
    """Where it counts as an operation in flight, while the store is asked."""
    confirmed: bool | None = None
    """Whether the store still had the hold; None while that is not known."""
    handle: LeaseHandle
    began: float
    until: float

    def __init__(self, handle: LeaseHandle) -> None:
        self.handle = handle

    def begin(self) -> Call[Any] | Unfinished | None:
        """End the lease. If it was the last one of a valid hold, make the request."""
        handle = self.handle
        hold, registry = handle.hold, handle.registry
        self.began = now = registry.env.now()
        self.last, self.ended = handle.end(), True
        if hold.is_unlocked:
            return None
        valid = hold.is_valid(now)
        if not self.last:
            keeps = valid and handle.weaker_mode() is None
            return None if keeps else UNFINISHED
        registry.remove(hold)
        if valid:
            hold.transition("release")
        if registry.closed or hold.claim.client != registry.client:
            hold.lose("its client was closed")
            return UNFINISHED
        self.in_flight = in_flight = registry.in_flight
        in_flight.active += 1
        self.until = timing.try_until(now, now + registry.op_timeout, registry.op_timeout)
        if hold.uncertain:
            return UNFINISHED
        self.call = registry.backend.begin_release(hold.claim, self.until)
        return self.call or UNFINISHED

    def finish(self, reply: Any) -> Unfinished | None:
        """End the hold, unless the store does not have it any more."""
        registry, hold = self.handle.registry, self.handle.hold
        call, self.call = self.call, None
        assert call is not None
        self.confirmed = registry.backend.finish_release(hold.claim, call, reply)
        if not self.confirmed or registry.listeners.all or not hold.transition("done"):
            return UNFINISHED
        self._leave()
        return None

    def _leave(self) -> None:
        in_flight, self.in_flight = self.in_flight, None
        assert in_flight is not None
        in_flight.exit()

    async def complete(self, error: BaseException | None) -> None:
        """Release the hold whatever it takes."""
        if error is not None and not self.ended:
            raise error
        handle = self.handle
        hold, registry = handle.hold, handle.registry
        if self.in_flight is not None:
            try:
                await self._send(error)
            finally:
                del error
                self._leave()
        elif error is not None:
            if self.last and not hold.is_unlocked:
                registry.remove(hold)
                registry.release_later(hold.claim)
            raise error
        elif not self.last:
            handle.failed = hold.state is State.LOST
            hold.check(self.began, registry.store)
            if (mode := handle.weaker_mode()) is not None:
                await conversion.weaken(registry, hold, mode)
            return
        if hold.state is not State.FREE:
            hold.lose(RAN_OUT)
            raise handle.lost_error()

    async def _send(self, error: BaseException | None) -> None:
        handle = self.handle
        hold, registry = handle.hold, handle.registry
        backend, op_timeout, retry = registry.backend, registry.op_timeout, None
        until, confirmed = self.until, self.confirmed
        try:
            if self.call is not None:
                assert error is not None
                error = backend.call_failed(hold.claim, self.call, error)
            while confirmed is None:
                try:
                    if error is not None:
                        raise error
                    confirmed = await backend.release(
                        hold.claim, tombstone=hold.uncertain, until=until
                    )
                except StoreError as failed:
                    error = None
                    retry = retry or Retry(registry.env, op_timeout, self.began + op_timeout)
                    retry.failed(failed)
                    await retry.pause()
                    until = retry.try_until()
        except StoreError as failed:
            registry.release_later(hold.claim)
            valid = registry.env.now() < hold.valid_until
            hold.lose(UNCONFIRMED if valid else RAN_OUT)
            raise handle.lost_error() from failed
        except BaseException:
            registry.release_later(hold.claim)
            raise
        finally:
            del error
        # If a repeated release finds nothing, an earlier one was applied.
        if not confirmed and retry is None:
            hold.lose(NOT_OURS)
        else:
            hold.transition("done")
            if registry.listeners.all:
                now = registry.env.now()
                event = hold_event("released", hold, now, now - hold.began)
                await registry.listeners.report(event, rare=False)


async def extend(registry: HoldRegistry, hold: Hold, length: float) -> None:
    """Make a hold end no sooner than *length* seconds from now, once. LeaseLost if it has ended,
    also while the store did not answer.
    """
    sent_at = registry.env.now()
    until = min(hold.valid_until, sent_at + registry.op_timeout)
    try:
        claims = [hold.claim._replace(lease=length)]
        with timing.concerning(hold.claim.name):
            answers = await registry.about_hold(
                partial(registry.backend.request, Renew(claims), until)
            )
        if answers[0] is None:
            raise OutcomeUnknown(
                f"it is not known whether {hold.claim.name!r} is still held: try again"
            )
    except StoreError as error:
        conversion.with_cause(registry, hold, registry.env.now(), error)
        raise
    if not answers[0]:
        hold.lose(TAKEN)
        registry.notify_lost(hold)
        raise hold.lost(registry.store)
    can = registry.backend.capabilities
    hold.max_valid_until = max(hold.max_valid_until, validity.lease_end(can, sent_at, length))
    hold.confirmed(validity.valid_until(can, sent_at, length))
    hold.check(registry.env.now(), registry.store)
    registry.schedule(hold, sent_at)
