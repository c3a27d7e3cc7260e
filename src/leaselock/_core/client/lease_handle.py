"""One acquisition, as the user has it in hand. Nested acquisitions share one hold.

A lease *has its hold in hand* until it has ended, and while the operation that ends it runs
(`lease_reference`). It ends in one of these ways:

| way | called by | its reference then refers to | the release is sent by |
|---|---|---|---|
| `release` | the user; `leave` | the operation `release.release` | that, then the renewer |
| `leave` | the end of a body | the same, named by `__exit__` before | `release`, or the renewer |
| `drop` | where nothing can be awaited | nothing | the renewer |
| `withdraw` | `lock_all`, whose caller never saw it | the operation | that, then the renewer |
| `detach` | the user | nothing | none is sent: the store keeps it |
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from leaselock._core.client import conversion, timing, validity
from leaselock._core.client.callbacks import calls_while_held
from leaselock._core.client.hold import RAN_OUT, TAKEN, State, no_owner
from leaselock._core.client.lease_reference import Group, LeaseReference, UnderWay, no_operation
from leaselock._core.client.release import release
from leaselock._core.client.validation import (
    LONGEST_LEASE,
    SHORTEST_LEASE,
    checked_seconds,
    checked_timeout,
)
from leaselock._core.contract.backend import Renew, SetLifetime
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import (
    LeaselockError,
    LeaseLost,
    NotHeld,
    OutcomeUnknown,
    StoreError,
    WouldDeadlock,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock._core.client.callbacks import DangerCallback, LeaseCallback
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold, QueueObserver
    from leaselock._core.contract.backend import Lifetime, Mode
    from leaselock._core.contract.effects import BodyInterrupter, Operation, Owner


# Seconds before the end of a lease, for `on_danger`.
SHORTEST_MARGIN = 0.01

H = TypeVar("H")
L = TypeVar("L")


def if_granted(handle: H | None, wrap: Callable[[H], L]) -> L | None:
    """What *wrap* makes of the handle of a grant; None if there was no grant."""
    return None if handle is None else wrap(handle)


class LockObject(Protocol):
    """What a lease needs of the lock object through which it was acquired."""

    kept: dict[Any, LeaseHandle]
    """What keeps its leases alive until they end."""


class UsedUp(Protocol):
    """What only a body without an exception uses up: a turn (turns.py)."""

    async def use_up(self, lease: LeaseHandle) -> None:
        """Use it up; LeaseLost if the store does not confirm that."""


# What `__exit__` ends where no lease is known by its frame: then `Mutex.leave` looks for it.
NO_LEASE: Any = SimpleNamespace(reference=Group(), group=Group(), outer=None)


class LeaseHandle:
    """One acquisition of a lock: it is released once."""

    # What most leases do not change is an attribute of the class: 2 % of a pair, with all of them.
    failed = False
    """Its release found that the lease was lost."""
    detached = False
    prolongs = False
    """It has a fixed lease renewed until its own release (`Hold.prolonged`)."""
    body_key: object = None
    """Which body it is that of (`Mutex.enter`)."""
    turn: UsedUp | None = None
    """What a body uses up that ends without an exception."""
    outer: LeaseHandle | None = None
    """That of the body around it which has the same key."""
    owner: Callable[[], Owner | None] = staticmethod(no_owner)
    """Who has acquired it through the lock object."""
    interrupter: BodyInterrupter | None = None
    loss_callbacks: Sequence[LeaseCallback] = ()
    danger_callbacks: Sequence[DangerCallback] = ()
    """What to call when a given time is left of it. Each is called once."""
    contended_callbacks: Sequence[LeaseCallback] = ()
    """What to call when others begin to wait for the lock."""

    hold: Hold

    def __init__(
        self, registry: ClaimRegistry, lock: Callable[[], LockObject | None], mode: Mode
    ) -> None:
        self.registry = registry
        # The lock object through which it was acquired, which is not kept alive by it.
        self.lock = lock
        # The mode of this lease; that of the hold is the strongest of its leases.
        self.mode = mode
        self.reference = LeaseReference(self)

    @property
    def began(self) -> tuple[float, int]:
        """When: a key by which the leases of one lock object are ordered. Another thread may end
        the lease meanwhile: then its place does not matter.
        """
        references = self.hold.references
        place = references.index(self.reference) if self.reference in references else 0
        return self.hold.began, place

    @property
    def released(self) -> bool:
        """Whether it has ended."""
        return self.reference.end is not None

    # --- who keeps it -----------------------------------------------------------------------------

    def keep(self) -> None:
        """Its caller has it now: the last step of an acquisition. The lock object keeps it, too."""
        if self.reference.is_kept:
            return
        self.reference.is_kept = True
        lock = self.lock()
        if lock is not None:
            lock.kept[self.body_key or self] = self

    def leave_lock(self) -> None:
        """The lock object keeps it no longer. That of a body is kept until the body ends."""
        lock = self.lock()
        if lock is not None and not self.reference.in_body:
            lock.kept.pop(self, None)

    # --- what it is -------------------------------------------------------------------------------

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

    def state(self) -> str:
        """What `repr` says of this lease."""
        if self.lost():
            return f"lost: {self.hold.reason or RAN_OUT}"
        if not self.released:
            return f"held, {self.remaining():.0f} s remaining"
        return "detached" if self.detached else "released"

    # --- its end ----------------------------------------------------------------------------------

    def release(self, ending: UnderWay | None = None) -> Operation[None]:
        """Release this acquisition, which ends at once. Its reference says already that it is left
        by *ending*, if that is given.
        """
        ending = ending or UnderWay()
        if self.reference.ended_by is None:
            self.reference.ended_by = weakref.ref(ending)
        return release(self, ending)

    def drop(self) -> None:
        """Release this acquisition where nothing can be awaited: through the renewer."""
        if self._ends_hold(no_operation):
            self.registry.release_later(self.hold)

    async def withdraw(self, until: float) -> None:
        """Release this acquisition, which its caller never saw: at once if the store answers before
        *until*, otherwise through the renewer.
        """
        hold, registry, ending = self.hold, self.registry, UnderWay()
        if self.reference.ended_by is not None or not self._ends_hold(weakref.ref(ending)):
            return
        if not registry.closed and registry.env.now() < until:
            with suppress(StoreError):
                await registry.backend.release(hold.claim, tombstone=hold.uncertain, until=until)
                registry.remove(hold)
                return
        registry.release_later(hold)

    def _ends_hold(self, ended_by: Callable[[], UnderWay | None]) -> bool:
        """End this acquisition; return whether its claim must be released. A conversion to a weaker
        mode is left to the renewer.
        """
        hold, registry = self.hold, self.registry
        self.reference.ended_by = ended_by
        self.leave_lock()
        if self.is_last():
            registry.end(hold)
            hold.transition("release")
            return True
        if hold.state is State.HELD and (mode := self.weaker_mode()) is not None:
            conversion.weaken_later(registry, hold, mode)
        return False

    def is_last(self) -> bool:
        """Whether no other lease of the hold is left, and no other operation ends the hold."""
        return self.hold.state in (State.HELD, State.LOST) and not self.hold.has_lease()

    def weaker_mode(self) -> Mode | None:
        """The mode to convert the hold to, now that this lease has ended. None if it stays as it
        is: with `min_hold` no other client may have the lock for a while.
        """
        claim = self.hold.claim
        # There is none left if another thread has just ended the last one, and releases it.
        left = conversion.strongest(self.hold.modes or (claim.mode,))
        return None if left == claim.mode or claim.min_hold > 0 else left

    def lost_error(self) -> LeaseLost:
        """The error of a lease that was lost; the loss is reported."""
        self.failed = self.released
        self.registry.notify_lost(self.hold)
        return self.hold.lost(self.registry.store)

    async def detach(self) -> None:
        """Leave the lock held for the rest of its lease; its token is needed to adopt it."""
        self.ensure()
        if self.hold.depth > 1:
            raise NotHeld(self.hold.claim.name, "a nested acquisition cannot be detached")
        if self.hold.provisional:
            await self.extend(self.hold.claim.lease)
        await self._set_lifetime("lease")
        self.hold.transition("detach")
        self.registry.end(self.hold)
        self.registry.remove(self.hold)
        self.detached = True
        self.reference.ended_by = no_operation
        self.leave_lock()

    # --- the body of a `with` ---------------------------------------------------------------------

    def add_interrupter(self) -> None:
        """Interrupt the body that begins now when the lease is lost, where that is possible."""
        interrupter = self.interrupter = self.registry.env.body_interrupter()
        if interrupter is not None:
            self.hold.interrupters += (interrupter,)

    async def begin_body(self, lease: L) -> L:
        """Begin the body of a `with` on this lease."""
        try:
            self.ensure()
            if self.interrupter is None:
                self.add_interrupter()
        except LeaselockError:
            raise
        except BaseException:
            self.drop()  # there will be no body, whose end releases it
            raise
        return lease

    async def end_body(
        self, exception: BaseException | None, ending: UnderWay | None = None
    ) -> None:
        """End it. The body may have released or detached the lease itself."""
        if self.reference.ended_by is not None:
            if self.interrupter is not None:
                self.finish_interrupter(self.interrupter, exception)
            return
        if self.turn is not None and exception is None:
            try:
                await self.turn.use_up(self)
            except BaseException as error:
                await self.leave(error, ending)
                raise
        await self.leave(exception, ending)

    async def leave(self, exception: BaseException | None, ending: UnderWay | None = None) -> None:
        """End the body of a `with`. Its own *exception* is never replaced."""
        interrupted = False
        try:
            if (interrupter := self.interrupter) is not None:
                interrupted = self.finish_interrupter(interrupter, exception)
            if isinstance(exception, GeneratorExit):
                self.drop()  # the body was dropped: nothing can be awaited any more
            else:
                await self.release(ending)
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

    # --- requests about the hold ------------------------------------------------------------------

    async def extend(self, seconds: object) -> None:
        """Make the lease end no sooner than *seconds* from now, once; None for the length of the
        lease. Renewal goes on.
        """
        if seconds is None:
            seconds = self.hold.claim.lease
        length = checked_seconds(seconds, "extend", least=SHORTEST_LEASE, most=LONGEST_LEASE)
        self.ensure()
        await extend(self.registry, self.hold, length)

    def prolong(self) -> None:
        """Have a fixed lease renewed until the release of this one, which is nested in it."""
        hold = self.hold
        self.prolongs = True
        hold.prolong()
        # As if its last renewal had been confirmed in time: the next one may be due now.
        self.registry.schedule(hold, hold.valid_until - hold.claim.lease)

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
        if hold.claim.mode == "update":
            from leaselock._core.client.upgrade import upgrade  # loaded where it is used

            deadline = FOREVER if limit is None else now + limit
            done = await upgrade(self.registry, hold, deadline, self.lock, lambda: self.released)
            self.ensure()  # another thread or task may have released it meanwhile
            if not done:
                return False
        self.mode = "exclusive"
        return True

    async def make_inheritable(self) -> tuple[int, ...]:
        """Let the lock live as long as any process that has the returned descriptors."""
        self.ensure()
        if not self.registry.backend.capabilities.inheritable:
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

    # --- functions of the user --------------------------------------------------------------------

    def on_lost(
        self, callback: Callable[[Any], object], lease: object, wrap: Callable[[Any], object]
    ) -> None:
        """Call *callback* with the user's lease when it is lost; soon, if it already is.

        *wrap* makes a new lease of this handle, if the user has dropped that one by then.
        """
        self.loss_callbacks = [*self.loss_callbacks, (callback, weakref.ref(lease), wrap)]
        if self.lost():
            self.hold.lose(RAN_OUT)
            self.registry.notify_lost(self.hold)

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
        known = (callback, weakref.ref(lease), wrap)
        registry.with_danger_callbacks.add(hold)
        self.danger_callbacks = [*self.danger_callbacks, (margin, known)]
        if hold.danger_at() < registry.planned:
            registry.wake_renewer(hold.danger_at())

    def contended(self) -> bool:
        """Whether others waited for the lock at the last look, which are repeated from now on."""
        if self.released or self.hold.state is not State.HELD:
            return False
        return self._observer().seen

    def on_contended(
        self, callback: Callable[[Any], object], lease: object, wrap: Callable[[Any], object]
    ) -> None:
        """Call *callback* with the user's lease whenever others begin to wait for the lock; soon,
        if one waits already.
        """
        if self.released:
            return
        observer = self._observer()
        known = (callback, weakref.ref(lease), wrap)
        self.contended_callbacks = [*self.contended_callbacks, known]
        if observer.seen:
            self.registry.notices.callbacks += calls_while_held(self, [known])
            self.registry.wake_renewer(0.0)

    def _observer(self) -> QueueObserver:
        """What follows the queue of the lock, from now on if it has not begun."""
        hold, registry = self.hold, self.registry
        observer = hold.contention
        if observer is None:
            from leaselock._core.client.contention import Contention  # loaded where it is used

            observer = hold.contention = Contention(registry, hold)
            registry.notices.observers.append(observer)
            registry.wake_renewer(0.0)
        return observer


async def extend(registry: ClaimRegistry, hold: Hold, length: float) -> None:
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
        from leaselock._core.client import break_notice  # loaded where it is used

        await break_notice.lose(registry, [hold])
        registry.notify_lost(hold)
        raise hold.lost(registry.store)
    can = registry.backend.capabilities
    hold.max_valid_until = max(hold.max_valid_until, validity.lease_end(can, sent_at, length))
    hold.confirmed(validity.valid_until(can, sent_at, length))
    hold.check(registry.env.now(), registry.store)
    registry.schedule(hold, sent_at)
