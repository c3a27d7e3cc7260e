"""A lock of one client, by its name: acquire it, nest, release it, inspect it."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock._core.client.acquisition import acquire
from leaselock._core.client.hold import ASKED, State
from leaselock._core.client.inspection import Holder, Waiter, holder_of, holders_of, lock_info
from leaselock._core.client.lease_handle import LeaseHandle, extend
from leaselock._core.client.lease_reference import UnderWay
from leaselock._core.client.timing import concerning
from leaselock._core.client.validation import (
    checked_permits,
    checked_timeout,
    refuse,
    refuse_positional,
)
from leaselock._core.client.watching import Watcher
from leaselock._core.contract.backend import STRENGTH, Busy, Claim, Resize
from leaselock._core.contract.effects import Owner
from leaselock._core.contract.marks import numbered_claim
from leaselock.errors import (
    AcquireTimeout,
    AlreadyHeld,
    LeaselockError,
    LimitMismatch,
    NotHeld,
    WouldDeadlock,
)

if TYPE_CHECKING:
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold
    from leaselock._core.client.options import LockOptions
    from leaselock._core.client.renewer import Renewer
    from leaselock._core.client.upgrade import UpgradeWait
    from leaselock._core.contract.backend import LockState, Mode
    from leaselock._core.contract.effects import Operation


# The modes, as the API names them.
SIDES: dict[Mode, str] = {"exclusive": "write", "update": "update", "shared": "read"}


class Mutex:
    """A name, and the options with which this client acquires it."""

    def __init__(
        self, registry: ClaimRegistry, renewer: Renewer, name: str, options: LockOptions
    ) -> None:
        self.registry = registry
        self.renewer = renewer
        self.name = name
        self.options = options
        # What keeps alive the leases that were acquired through this object: each by itself until
        # it is released, or its thread or task has ended; that of a body of `with` by the frame of
        # the body until that ends, which may be in another thread or task. Of nested bodies in one
        # frame it is the innermost (`LeaseHandle.outer`).
        self.kept: dict[object, LeaseHandle] = {}
        # Whether the caller of acquire calls `LeaseHandle.keep`, as its last step. If not, that is
        # done here: an interrupt after it leaves a lease that no caller has.
        self.kept_by_caller = False
        self.reference = weakref.ref(self)
        self.forget_owner = partial(_forget_owner, self.reference)
        # The owner, where that is this object.
        self.itself = Owner("lock", f"{id(self):x}") if options.owned_by_lock else None

    # --- acquiring --------------------------------------------------------------------------------

    def acquire(
        self,
        timeout: object,
        permits: object = 1,
        positional: tuple[object, ...] = (),
        **unknown: object,
    ) -> Operation[LeaseHandle]:
        """Acquire the lock; AcquireTimeout when *timeout* seconds have passed, by default the
        lock's own.
        """
        if positional or unknown:
            refuse_positional("acquire", positional)
            refuse("acquire", unknown)
        limit = self.options.timeout if timeout is None else checked_timeout(timeout)
        return acquire(self, limit, checked_permits(permits, self.options.limit), "raise")

    def try_acquire(
        self,
        timeout: object = 0.0,
        permits: object = 1,
        positional: tuple[object, ...] = (),
        **unknown: object,
    ) -> Operation[LeaseHandle | None]:
        """Acquire the lock; None when *timeout* seconds have passed."""
        refuse_positional("try_acquire", positional)
        refuse("try_acquire", unknown)
        limit, permits = checked_timeout(timeout), checked_permits(permits, self.options.limit)
        return acquire(self, limit, permits, "none")

    def enter(self, body_key: object = None) -> Operation[LeaseHandle]:
        """Acquire the lock for the body of a `with`, which is interrupted when the lease is lost;
        AcquireTimeout when the time has passed.

        *body_key* is an object that `leave` has, too, when it is called for the same body. It is
        kept until then: the address of a frame that has ended is soon that of another one.
        """
        return acquire(self, self.options.timeout, 1, "raise", (body_key,))

    def obtain(self, deadline: float, permits: int) -> Operation[LeaseHandle | Busy]:
        """Acquire the lock until *deadline*: a lease, or why there is none."""
        return acquire(self, deadline - self.registry.env.now(), permits, "reply")

    def claim(self, owner: Owner, permits: int = 1, note: str = "") -> Claim:
        """A new claim of *owner*."""
        registry, options = self.registry, self.options
        if registry.check_acquire is not None:
            registry.check_acquire()
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
            mode=options.mode,
            permits=permits,
            min_hold=options.min_hold,
            aligned=options.aligned,
            limit=options.limit,
            of_rwlock=options.of_rwlock,
        )

    def nest(self, hold: Hold, lease: LeaseHandle) -> bool:
        """Acquire again what this owner holds; False if that takes a request."""
        hold.check(self.registry.env.now(), self.registry.store)
        options, claim = self.options, hold.claim
        if not options.reentrant:
            raise AlreadyHeld(self.name)
        if STRENGTH[options.mode] > STRENGTH[claim.mode] or options.lease > claim.lease:
            return False
        lease.hold = hold
        hold.give(lease)
        return True

    async def extend_and_nest(self, hold: Hold, lease: LeaseHandle, deadline: float) -> Busy | None:
        """The same for a stronger mode, or a longer lease."""
        mode = self.options.mode
        if STRENGTH[mode] > STRENGTH[hold.claim.mode]:
            if hold.claim.mode != "update":
                raise WouldDeadlock(self.name, SIDES[mode])
            from leaselock._core.client.upgrade import upgrade  # loaded where it is used

            if not await upgrade(self.registry, hold, deadline, self.reference):
                return Busy(None, 0.0, ())
        if self.options.lease > hold.claim.lease:
            if not hold.renew:
                await extend(self.registry, hold, self.options.lease)
                if hold.state is not State.HELD:
                    raise NotHeld(self.name, f"{self.name!r} was released meanwhile")
            hold.claim = hold.claim._replace(lease=self.options.lease)
        lease.hold = hold
        hold.give(lease)
        return None

    def begin_lease(self, lease: LeaseHandle, owner: Owner, body: Any) -> LeaseHandle:
        """A lease begins. *body* has the key of the body of a `with`, if it is for one."""
        if self.options.renew and lease.hold.fixed:
            lease.prolong()
        lease.owner = weakref.ref(self.itself or owner, self.forget_owner)
        if body is not None:
            (key,) = body
            lease.reference.in_body = True
            lease.body_key, lease.outer = key, self.kept.get(key)
            lease.add_interrupter()
        if not self.kept_by_caller:
            lease.keep()
        return lease

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

    def cancel(self) -> int:
        """End the acquisitions through this object that are waiting, and the waits for upgrades of
        its leases; return how many.
        """
        table = list(self.registry.table.values())
        waits: list[Hold | UpgradeWait] = [hold for hold in table if hold.state in ASKED]
        waits += [wait for hold in table if hold.upgrade for wait in hold.upgrade.waits]
        waits = [each for each in waits if each.lock is self.reference and not each.cancelled]
        for wait in waits:
            wait.cancelled = True
        if waits:
            self.registry.backend.wake([wait.claim.id for wait in waits])
        return len(waits)

    # --- its leases -------------------------------------------------------------------------------

    def leases(self) -> list[LeaseHandle]:
        """The leases that were acquired through this object and have not ended, the newest last."""
        found = []
        for kept in list(self.kept.values()):
            lease: LeaseHandle | None = kept
            while lease is not None:
                if lease.reference.end is None:
                    found.append(lease)
                lease = lease.outer
        return sorted(found, key=lambda each: each.began)

    async def release(self) -> None:
        """Release what this thread or task acquired last through this object."""
        try:
            lease = self._newest()
        except LeaselockError:
            raise
        except BaseException:
            self._newest().drop()  # interrupted: whatever follows, it is to be released
            raise
        await lease.release()

    def _newest(self) -> LeaseHandle:
        owner = self._owner()
        for lease in reversed(self.leases()):
            if lease.owner() is owner:
                return lease
        raise self._not_held("release")

    async def leave(
        self,
        exception: BaseException | None,
        body_key: object = None,
        ending: UnderWay | None = None,
    ) -> None:
        """End the body of a `with`. Its own *exception* is never replaced.

        The reference to its lease says already that it is left by *ending*, if its key is known.
        """
        ending = ending or UnderWay()
        try:
            lease = self._entered(body_key, ending)
            lease.reference.left_by = weakref.ref(ending)
            self._forget_body(lease)
            if lease.reference.ended_by is not None:
                raise self._not_held("leave")
        except NotHeld as not_held:
            if exception is None:
                raise
            exception.add_note(f"leaselock: {not_held}")
        else:
            await lease.leave(exception, ending)

    def _entered(self, body_key: object, ending: UnderWay) -> LeaseHandle:
        """The lease of the body that ends: the innermost with the same key that no other end has
        left, which was interrupted then; else the newest that this thread or task has entered; else
        the newest of all.
        """
        known = self.kept.get(body_key)
        while known is not None:
            left_by = known.reference.left_by
            if left_by is None or left_by() is ending:
                return known
            known = known.outer
        bodies, owner = [lease for lease in self.leases() if lease.reference.in_body], self._owner()
        found = [body for body in bodies if body.owner() is owner] or bodies
        if not found:
            raise self._not_held("leave")
        return found[-1]

    def _forget_body(self, lease: LeaseHandle) -> None:
        key = lease.body_key or lease
        if lease.outer is None:
            self.kept.pop(key, None)
        else:
            self.kept[key] = lease.outer
        # The key is a frame, which has the lease among its variables.
        lease.body_key = lease.outer = None

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
            "this lock object (another may, and a forked process holds nothing); keep the lease "
            'of acquire and release that, or make the lock with owner="lock"',
        )

    def _owner(self) -> Owner:
        return self.itself or self.registry.env.owner()

    def owned(self) -> bool:
        """Whether this thread or task, or this object where it is the owner, has a valid hold."""
        now, owner = self.registry.env.now(), self._owner()
        if self.options.mode == "permits":
            leases = [lease for lease in self.leases() if lease.owner() is owner]
            return any(lease.hold.is_valid(now) for lease in leases)
        hold = self.registry.of(owner, self.name)
        if hold is None or STRENGTH[hold.claim.mode] < STRENGTH[self.options.mode]:
            return False
        if self.options.mode == "shared" and "shared" not in hold.modes:
            return False  # the writer may acquire this side, and has not
        return hold.is_valid(now)

    def state(self) -> str:
        """What `repr` says: the mode, unless it is exclusive, and the lease that was acquired last
        through this object, by any owner.
        """
        now, mode, limit = self.registry.env.now(), self.options.mode, self.options.limit
        kind = "" if mode in ("exclusive", "permits") else f", {mode}"
        kind = f", {limit} permits" if limit else kind
        valid = [lease for lease in self.leases() if lease.hold.is_valid(now)]
        return f"{kind}, held, token {valid[-1].hold.token}" if valid else kind

    # --- the lock in the store --------------------------------------------------------------------

    def watch(self) -> Watcher:
        """A watcher of this lock."""
        return Watcher(self.registry, self.renewer, self.name)

    async def holder(self) -> Holder | None:
        """The holder of the lock; of several the oldest."""
        state = await self._state()
        return next(iter(holders_of(state)), None)

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
        return list(lock_info(await self._state(whole=True)).waiters)

    async def _state(self, *, whole: bool = False) -> LockState:
        """The state; Unreadable if its holds, or with *whole* anything of it, cannot be read."""
        (state,) = await self.registry.inspect(self.name, "*")
        if whole or not state.holds:
            with concerning(self.name):
                state.readable()
        return state


def _forget_owner(mutex: weakref.ref[Mutex], owner: weakref.ref[Owner]) -> None:
    """Keep the leases of a thread or task that has ended no longer, except for those of bodies."""
    this = mutex()
    if this is not None:
        for lease in list(this.kept.values()):
            if lease.owner is owner and not lease.reference.in_body:
                this.kept.pop(lease, None)
