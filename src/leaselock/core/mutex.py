"""A lock of one client, by its name: acquire it, nest, release it, inspect it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

from leaselock.core.acquisition import Acquisition, LockOptions
from leaselock.core.effects import FOREVER, Owner
from leaselock.core.hold import Hold
from leaselock.core.inspection import Holder, Waiter, holder_of, waiter_of
from leaselock.core.lease_handle import LeaseHandle
from leaselock.core.validation import checked_timeout, refuse
from leaselock.errors import AcquireTimeout, AlreadyHeld, NotHeld

if TYPE_CHECKING:
    from leaselock.core.backend import Busy, LockState
    from leaselock.core.effects import Process
    from leaselock.core.hold_registry import HoldRegistry
    from leaselock.core.local_handoff import LocalHandoff
    from leaselock.core.renewer import Renewer


class Entry(NamedTuple):
    """The body of a `with`, which keeps its lease until it ends, in whichever thread or task."""

    handle: LeaseHandle
    place: object
    owner: weakref.ref[Owner]


class Mutex:
    """A name, and the options with which this client acquires it."""

    def __init__(
        self, registry: HoldRegistry, renewer: Renewer, name: str, options: LockOptions
    ) -> None:
        self.registry = registry
        self.renewer = renewer
        self.name = name
        self.options = options
        # The leases that each thread or task has acquired through this object, the newest last.
        self.handles: dict[weakref.ref[Owner], list[LeaseHandle]] = {}
        # The bodies of `with` that have not ended, the newest last.
        self.entries: list[Entry] = []
        # The owner, where that is this object.
        self.itself = Owner("lock") if options.owned_by_lock else None
        # The acquisitions through this object that have not ended.
        self.waiting: set[Acquisition] = set()

    def acquire(self, timeout: object, **unknown: object) -> Process[LeaseHandle | None]:
        """Acquire the lock; None when the time has passed. Without *timeout* the lock's own holds,
        and AcquireTimeout is raised.

        A wrong number is refused here, before anything is awaited.
        """
        refuse("acquire", unknown)
        return self._acquire(checked_timeout(timeout))

    async def enter(self, place: object = None) -> LeaseHandle:
        """Acquire the lock for the body of a `with`, which is interrupted when the lease is lost;
        AcquireTimeout when the time has passed.

        *place* is something that `leave` has, too, when it is called for the same body.
        """
        handle = await self._acquire(None)
        assert handle is not None
        self.entries.append(Entry(handle, place, self._owner().reference))
        handle.guard_body()
        return handle

    def _owner(self) -> Owner:
        return self.itself or self.registry.env.owner()

    async def _acquire(self, timeout: float | None) -> LeaseHandle | None:
        registry, options = self.registry, self.options
        owner = registry.env.owner()
        holder = self.itself or owner
        hold = None if options.owned_by_lock else registry.of(owner, self.name)
        if hold is not None:
            self._nest(hold)
        elif not options.cached or (hold := self._take_cached(owner)) is None:
            limit = options.timeout if timeout is None else timeout
            deadline = FOREVER if limit is None else registry.env.now() + limit
            claim = registry.claim(
                self.name, options.lease, options.label, owner, options.tokens, options.cached
            )
            acquisition = Acquisition(registry, options, claim, deadline)
            self.waiting.add(acquisition)
            try:
                found = await acquisition.obtain(self.renewer, holder)
            finally:
                self.waiting.discard(acquisition)
            if not isinstance(found, Hold):
                return self._timed_out(found) if timeout is None else None
            hold = found
            hold.place = registry.env.call_site()
        handle = LeaseHandle(registry, hold)
        self._remember(handle, holder)
        return handle

    def cancel(self) -> int:
        """End the acquisitions through this object that are waiting; return how many."""
        waiting = [each for each in self.waiting if not each.cancelled]
        for acquisition in waiting:
            acquisition.cancelled = True
        if waiting:
            self.registry.backend.wake_all()
        return len(waiting)

    def _nest(self, hold: Hold) -> None:
        hold.check(self.registry.env.now())
        if not self.options.reentrant:
            raise AlreadyHeld(self.name)
        hold.depth += 1
        if self.options.lease > hold.claim.lease:
            hold.claim = hold.claim._replace(lease=self.options.lease)

    def _take_cached(self, owner: Owner) -> Hold | None:
        """Take the lease that this client has kept, in one step and without a request."""
        registry, options = self.registry, self.options
        now, layer = registry.env.now(), cast("LocalHandoff", registry.backend)
        lease = layer.cached_lease(self.name, options.lease, now)
        if lease is None or not registry.renewing.running:
            return None
        claim = registry.claim(self.name, options.lease, options.label, owner, options.tokens, True)
        return registry.add(
            claim,
            layer.take_cached(lease, claim),
            lease.valid_until,
            asked=now,
            lasts=lease.valid_until - now,
            renew=options.renew,
            owner=owner,
        )

    def _timed_out(self, busy: Busy) -> NoReturn:
        holder, detail = holder_of(busy.held, None), ""
        if holder is not None:
            held_for = max(0.0, self.registry.env.wall() - holder.since)
            detail = f"held by {holder} for {held_for:.1f} s"
        raise AcquireTimeout(self.name, self.options.timeout, holder, busy.waiting, detail)

    def _remember(self, handle: LeaseHandle, owner: Owner) -> None:
        # The handles do not know this list: a cycle would keep alive what its owner has dropped.
        handles = self.handles.get(owner.reference)
        if handles is None:
            handles = self._begin_list(owner)
        while handles and handles[-1].released:
            handles.pop()
        handles.append(handle)

    def _begin_list(self, owner: Owner) -> list[LeaseHandle]:
        # Weak references in both directions: neither keeps the other alive, nor what it holds.
        this = weakref.ref(self)

        def forget(reference: weakref.ref[Owner]) -> None:
            getattr(this(), "handles", {}).pop(reference, None)

        return self.handles.setdefault(weakref.ref(owner, forget), [])

    async def release(self) -> None:
        """Release what this thread or task acquired last through this object."""
        await self._newest("release").release()

    async def leave(self, exception: BaseException | None, place: object = None) -> None:
        """End the body of a `with`. Its own *exception* is never replaced."""
        try:
            handle = self._entered(place)
        except NotHeld as error:
            if exception is None:
                raise
            exception.add_note(f"leaselock: {error}")
        else:
            await handle.leave(exception)

    def _entered(self, place: object) -> LeaseHandle:
        """The lease of the body that ends: it may end in another thread than it began in."""
        owner = self._owner().reference
        same_place = [entry for entry in self.entries if place is not None and entry.place == place]
        same_owner = [entry for entry in self.entries if entry.owner == owner]
        found = same_place or same_owner or self.entries
        entry = next((e for e in reversed(found) if not e.handle.released), None)
        self.entries = [e for e in self.entries if e is not entry and not e.handle.released]
        if entry is None:
            raise self._not_held("leave")
        return entry.handle

    def _newest(self, what: str) -> LeaseHandle:
        handles = self.handles.get(self._owner().reference, [])
        while handles and handles[-1].released:
            handles.pop()
        if not handles:
            raise self._not_held(what)
        return handles[-1]

    def _not_held(self, what: str) -> NotHeld:
        if self.itself is not None:
            return NotHeld(
                self.name, f"cannot {what} {self.name!r}: this lock object does not hold it"
            )
        return NotHeld(
            self.name,
            f"cannot {what} {self.name!r}: this thread or task does not hold it through "
            "this lock object (another may, and a forked process holds nothing)",
        )

    def owned(self) -> bool:
        """Whether this thread or task, or this object where it is the owner, has a valid hold."""
        hold = self.registry.of(self._owner(), self.name)
        return hold is not None and hold.is_valid(self.registry.env.now())

    def state(self) -> str:
        """What `repr` says of the leases that were acquired through this object, by any owner."""
        now = self.registry.env.now()
        handles = [handle for each in list(self.handles.values()) for handle in list(each)]
        valid = [h for h in handles if not h.released and h.hold.is_valid(now)]
        return f", held, token {valid[-1].hold.token}" if valid else ""

    async def holder(self) -> Holder | None:
        """The holder of the lock."""
        state = await self._state()
        return holder_of(state.held, state.remaining)

    async def waiters(self) -> list[Waiter]:
        """The waiters for the lock, in order."""
        return [waiter_of(claim) for claim in (await self._state()).waiting]

    async def _state(self) -> LockState:
        (state,) = await self.registry.inspect(self.name, "*")
        return state
