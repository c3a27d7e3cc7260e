"""A lock of one client, by its name: acquire it, nest, release it, inspect it."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock._core import conversion
from leaselock._core.acquisition import Acquisition, LockOptions
from leaselock._core.backend import STRENGTH, Busy, Claim, Resize
from leaselock._core.effects import Owner
from leaselock._core.inspection import Holder, Waiter, holder_of, holders_of, waiter_of
from leaselock._core.lease_handle import LeaseHandle, Release, extend
from leaselock._core.marks import numbered_claim
from leaselock._core.short_operation import UNFINISHED
from leaselock._core.timing import concerning
from leaselock._core.validation import checked_permits, checked_timeout, refuse
from leaselock._core.watching import Watcher
from leaselock.errors import (
    AcquireTimeout,
    AlreadyHeld,
    LimitMismatch,
    NotHeld,
    WouldDeadlock,
)

if TYPE_CHECKING:
    from leaselock._core.backend import LockState, Mode
    from leaselock._core.effects import Call
    from leaselock._core.hold import Hold
    from leaselock._core.hold_registry import HoldRegistry
    from leaselock._core.local_handoff import LocalHandoff
    from leaselock._core.renewer import Renewer
    from leaselock._core.short_operation import Unfinished


# The modes, as the API names them.
SIDES: dict[Mode, str] = {"exclusive": "write", "update": "update", "shared": "read"}


class Mutex:
    """A name, and the options with which this client acquires it."""

    def __init__(
        self, registry: HoldRegistry, renewer: Renewer, name: str, options: LockOptions
    ) -> None:
        self.registry = registry
        self.renewer = renewer
        self.name = name
        self.options = options
        # The leases that were acquired through this object and not released, and those of bodies of
        # `with` that have not ended; the newest last. A lease outside of a body is dropped with the
        # thread or task that acquired it. A body may end in another one.
        self.leases: dict[LeaseHandle, None] = {}
        self.reference = weakref.ref(self)
        self.drop_leases = partial(_drop_leases, self.reference)
        # The owner, where that is this object.
        self.itself = Owner("lock", f"{id(self):x}") if options.owned_by_lock else None
        # The acquisitions through this object that have not ended, and the upgrades of its leases.
        self.waiting: set[Acquisition[Any] | conversion.Upgrade] = set()

    def acquire(
        self, timeout: object, permits: object = 1, **unknown: object
    ) -> Acquisition[LeaseHandle]:
        """Acquire the lock; AcquireTimeout when *timeout* seconds have passed, by default the
        lock's own.
        """
        if unknown:
            refuse("acquire", unknown)
        limit = self.options.timeout if timeout is None else checked_timeout(timeout)
        return Acquisition(self, limit, checked_permits(permits, self.options.limit), "raise")

    def try_acquire(
        self, timeout: object = 0.0, permits: object = 1, **unknown: object
    ) -> Acquisition[LeaseHandle | None]:
        """Acquire the lock; None when *timeout* seconds have passed."""
        refuse("try_acquire", unknown)
        limit, permits = checked_timeout(timeout), checked_permits(permits, self.options.limit)
        return Acquisition(self, limit, permits, "none")

    def enter(self, body_key: object = None) -> Acquisition[LeaseHandle]:
        """Acquire the lock for the body of a `with`, which is interrupted when the lease is lost;
        AcquireTimeout when the time has passed.

        *body_key* is an object that `leave` has, too, when it is called for the same body. It is
        kept until then: the address of a frame that has ended is soon that of another one.
        """
        acquisition = Acquisition[LeaseHandle](self, self.options.timeout, 1, "raise")
        acquisition.is_body, acquisition.body_key = True, body_key
        return acquisition

    def obtain(self, deadline: float, permits: int) -> Acquisition[LeaseHandle | Busy]:
        """Acquire the lock until *deadline*: a lease, or why there is none."""
        return Acquisition(self, deadline - self.registry.env.now(), permits, "reply")

    def _owner(self) -> Owner:
        return self.itself or self.registry.env.owner()

    def cancel(self) -> int:
        """End the acquisitions through this object that are waiting, and the waits for upgrades of
        its leases; return how many.
        """
        waiting = [wait for wait in self.waiting if not wait.cancelled]
        for wait in waiting:
            wait.cancelled = True
        if waiting:
            self.registry.backend.wake([wait.claim.id for wait in waiting])
        return len(waiting)

    def nest(self, hold: Hold) -> bool:
        """Acquire again what this owner holds; False if that takes a request."""
        hold.check(self.registry.env.now(), self.registry.store)
        options, claim = self.options, hold.claim
        if not options.reentrant:
            raise AlreadyHeld(self.name)
        if STRENGTH[options.mode] > STRENGTH[claim.mode] or options.lease > claim.lease:
            return False
        hold.modes.append(options.mode)
        return True

    async def extend_and_nest(self, hold: Hold, deadline: float) -> Busy | None:
        """The same for a stronger mode, or a longer lease."""
        mode = self.options.mode
        if STRENGTH[mode] > STRENGTH[hold.claim.mode]:
            if hold.claim.mode != "update":
                raise WouldDeadlock(self.name, SIDES[mode])
            if not await conversion.upgrade(self.registry, hold, deadline, self.waiting):
                return Busy(None, 0.0, ())
        if self.options.lease > hold.claim.lease:
            if not hold.renew:
                await extend(self.registry, hold, self.options.lease)
            hold.claim = hold.claim._replace(lease=self.options.lease)
        hold.modes.append(mode)
        return None

    def claim(self, owner: Owner, permits: int = 1, note: str = "") -> Claim:
        """A new claim of *owner*."""
        registry, options = self.registry, self.options
        metadata = registry.metadata(
            owner, options.label, note, owned_by_lock=options.owned_by_lock
        )
        if options.numbered:
            metadata = numbered_claim(metadata, permits)
        return Claim(
            self.name,
            registry.new_id(self.name),
            registry.client,
            options.lease,
            metadata,
            registry.env.wall(),
            options.tokens,
            options.cached,
            options.mode,
            permits,
            options.min_hold,
            options.aligned,
            options.limit,
            0.0,
            options.of_rwlock,
        )

    def take_cached(self, owner: Owner, now: float) -> Hold | None:
        """Take the lease that this client has kept, in one step and without a request."""
        registry, options = self.registry, self.options
        layer: LocalHandoff = registry.backend  # type: ignore[assignment] # `cached` needs one
        queue = layer.queues.get(self.name)
        lease = None if queue is None else queue.cached_lease(options.lease, now)
        if queue is None or lease is None or not registry.renewing.running:
            return None
        claim = self.claim(owner)
        return registry.add(
            claim,
            layer.take_cached(queue, lease, claim),
            lease.valid_until,
            sent_at=now,
            lasts=lease.valid_until - now,
            renew=options.renew,
            max_hold=options.max_hold,
            owner=owner,
        )

    def timed_out(self, busy: Busy, limit: float | None) -> AcquireTimeout:
        """The error for a claim that was not granted in time."""
        holder, detail = holder_of(busy.held, None), ""
        if holder is not None and holder.cooling_down:
            detail = f"cooling down, held last by {holder}"
        elif holder is not None:
            detail = f"held by {holder}"
            if holder.since is not None:
                held_for = max(0.0, self.registry.env.wall() - holder.since)
                detail += f" for {held_for:.1f} s"
            if busy.holds > 1:
                detail += f", and by {busy.holds - 1} more"
        store = self.registry.store
        return AcquireTimeout(self.name, limit, holder, busy.waiting, detail, store)

    def release(self) -> Release:
        """Release what this thread or task acquired last through this object."""
        return Release(self._newest("release"))

    def leave(self, exception: BaseException | None, body_key: object = None) -> EndOfBody:
        """End the body of a `with`. Its own *exception* is never replaced."""
        return EndOfBody(self, exception, body_key)

    def entered(self, body_key: object) -> LeaseHandle:
        """The lease of the body that ends: that with the same key; else the newest that this thread
        or task has entered; else the newest of all.
        """
        newest = next(reversed(self.leases), None)
        if newest is None or newest.body_key is not body_key or body_key is None or newest.released:
            bodies = [lease for lease in reversed(list(self.leases)) if lease.in_body]
            owner = self._owner()
            same_key = [body for body in bodies if body.body_key is body_key is not None]
            found = same_key or [body for body in bodies if body.owner() is owner] or bodies
            newest = next((body for body in found if not body.released), None)
            for body in bodies:
                if body.released:
                    body.body_key = None
                    del self.leases[body]
            if newest is None:
                raise self._not_held("leave")
        del self.leases[newest]
        newest.body_key = None  # a frame has the lease among its variables
        return newest

    def _newest(self, what: str) -> LeaseHandle:
        owner = self._owner()
        for handle in reversed(list(self.leases)):
            if handle.owner() is owner and not handle.released:
                return handle
        raise self._not_held(what)

    def _not_held(self, what: str) -> NotHeld:
        if self.itself is not None:
            return NotHeld(
                self.name, f"cannot {what} {self.name!r}: this lock object does not hold it"
            )
        if self.owned():
            return NotHeld(
                self.name,
                f"cannot {what} {self.name!r} by this lock object: this thread or task has "
                "acquired it by another one; release it by its lease or by that object",
            )
        return NotHeld(
            self.name,
            f"cannot {what} {self.name!r}: this thread or task does not hold it through "
            "this lock object (another may, and a forked process holds nothing)",
        )

    def owned(self) -> bool:
        """Whether this thread or task, or this object where it is the owner, has a valid hold."""
        now, owner = self.registry.env.now(), self._owner()
        if self.options.mode == "permits":
            leases = [lease for lease in list(self.leases) if lease.owner() is owner]
            holds = [lease.hold for lease in leases if not lease.released]
            return any(hold.is_valid(now) and not hold.is_unlocked for hold in holds)
        hold = self.registry.of(owner, self.name)
        if hold is None or STRENGTH[hold.claim.mode] < STRENGTH[self.options.mode]:
            return False
        return hold.is_valid(now)

    def state(self) -> str:
        """What `repr` says: the mode, unless it is exclusive, and the lease that was acquired last
        through this object, by any owner.
        """
        now, mode, limit = self.registry.env.now(), self.options.mode, self.options.limit
        kind = "" if mode in ("exclusive", "permits") else f", {mode}"
        kind = f", {limit} permits" if limit else kind
        valid = [h for h in list(self.leases) if not h.released and h.hold.is_valid(now)]
        valid = [h for h in valid if not h.hold.is_unlocked]
        return f"{kind}, held, token {valid[-1].hold.token}" if valid else kind

    def watch(self) -> Watcher:
        """A watcher of this lock."""
        return Watcher(self.registry, self.renewer, self.name)

    async def holder(self) -> Holder | None:
        """The holder of the lock; of several the oldest."""
        state = await self._state()
        return holder_of(state.held, state.remaining)

    async def holders(self) -> list[Holder]:
        """All holders of the lock, the oldest first."""
        return holders_of(await self._state())

    async def available(self) -> int:
        """How many permits of the semaphore are not held."""
        state = await self._state(whole=True)
        limit = state.limit or self.options.limit
        return max(0, limit - sum(hold.record.permits for hold in state.holds))

    async def resize(self, permits: object) -> None:
        """Change the number of permits of the semaphore."""
        limit = checked_permits(permits)
        request, until = Resize(self.name, limit), self.registry.answer_by()
        reply = await self.registry.backend.request(request, until)
        if reply.limit is None:
            raise LimitMismatch(self.name, limit, None)
        self.options = self.options._replace(limit=limit)

    async def waiters(self) -> list[Waiter]:
        """The waiters for the lock, in order."""
        return [waiter_of(claim) for claim in (await self._state(whole=True)).waiting]

    async def _state(self, *, whole: bool = False) -> LockState:
        """The state; Unreadable if its holds, or with *whole* anything of it, cannot be read."""
        (state,) = await self.registry.inspect(self.name, "*")
        if whole or not state.holds:
            with concerning(self.name):
                state.readable()
        return state


class EndOfBody(Release):
    """The end of a body of `with` on a lock object, and of its lease."""

    def __init__(self, mutex: Mutex, exception: BaseException | None, body_key: object) -> None:
        self.mutex = mutex
        self.exception = exception
        self.body_key = body_key

    def begin(self) -> Call[Any] | Unfinished | None:
        """End the body, and its lease unless the body has raised an exception."""
        if self.exception is not None:
            return UNFINISHED
        handle = self.handle = self.mutex.entered(self.body_key)
        if handle.interrupter is not None:
            handle.finish_interrupter(handle.interrupter, None)
        return super().begin()

    async def complete(self, error: BaseException | None) -> None:
        """Release the lease whatever it takes."""
        exception = self.exception
        if exception is None:
            await super().complete(error)
            return
        try:
            handle = self.mutex.entered(self.body_key)
        except NotHeld as not_held:
            exception.add_note(f"leaselock: {not_held}")
        else:
            await handle.leave(exception)


def _drop_leases(mutex: weakref.ref[Mutex], owner: weakref.ref[Owner]) -> None:
    """Drop the leases of a thread or task that has ended, except for those of bodies."""
    this = mutex()
    if this is not None:
        for lease in list(this.leases):
            if lease.owner is owner and not lease.in_body:
                this.leases.pop(lease, None)
