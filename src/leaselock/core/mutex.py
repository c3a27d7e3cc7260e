"""A lock of one client, by its name: acquire it, nest, release it, inspect it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NoReturn, cast

from leaselock.core.acquisition import Acquisition, LockOptions
from leaselock.core.effects import FOREVER, Owner
from leaselock.core.hold import Hold
from leaselock.core.inspection import Holder, Waiter, holder_of, waiter_of
from leaselock.core.lease_handle import LeaseHandle
from leaselock.core.validation import checked_timeout
from leaselock.errors import AcquireTimeout, AlreadyHeld, LeaselockError, NotHeld

if TYPE_CHECKING:
    from leaselock.core.backend import Busy, LockState
    from leaselock.core.effects import Process
    from leaselock.core.hold_registry import HoldRegistry
    from leaselock.core.local_handoff import LocalHandoff
    from leaselock.core.renewer import Renewer


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

    def acquire(self, timeout: object) -> Process[LeaseHandle | None]:
        """Acquire the lock; None when the time has passed. Without *timeout* the lock's own holds.

        A wrong number is refused here, before anything is awaited.
        """
        return self._acquire(checked_timeout(timeout), entering=False)

    def enter(self) -> Process[LeaseHandle]:
        """Acquire the lock for the body of a `with`, which is interrupted when the lease is lost;
        AcquireTimeout when the time has passed.
        """
        process: Process[Any] = self._acquire(None, entering=True)
        return process

    async def _acquire(self, timeout: float | None, entering: bool) -> LeaseHandle | None:
        registry, options = self.registry, self.options
        owner = registry.env.owner()
        hold = registry.of(owner, self.name)
        if hold is not None:
            self._nest(hold)
        elif not options.cached or (hold := self._take_cached(owner)) is None:
            if timeout is None:
                timeout = options.timeout
            deadline = FOREVER if timeout is None else registry.env.now() + timeout
            claim = registry.claim(
                self.name, options.lease, options.label, owner, options.tokens, options.cached
            )
            found = await Acquisition(registry, options, claim, deadline).obtain(
                self.renewer, owner
            )
            if not isinstance(found, Hold):
                return self._timed_out(found) if entering else None
            hold = found
        handle = LeaseHandle(registry, hold)
        self._remember(handle, owner)
        if entering and (guard := registry.env.guard()) is not None:
            handle.watch_over(guard)
        return handle

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

    async def leave(self, exception: BaseException | None) -> None:
        """End the body of a `with`. Its own *exception* is never replaced."""
        interrupted = False
        try:
            handle = self._newest("leave")
            if (guard := handle.guard) is not None:
                interrupted = handle.unguard(guard, exception)
            if isinstance(exception, GeneratorExit):
                handle.drop()  # the body was dropped: nothing can be awaited any more
            else:
                await handle.release()
        except LeaselockError as error:
            if exception is None:
                raise
            if interrupted:
                raise error from error.__cause__ or exception
            exception.add_note(f"leaselock: {error}")

    def _newest(self, what: str) -> LeaseHandle:
        handles = self.handles.get(self.registry.env.owner().reference, [])
        while handles and handles[-1].released:
            handles.pop()
        if not handles:
            raise NotHeld(
                self.name,
                f"cannot {what} {self.name!r}: this thread or task does not hold it through "
                "this lock object (another may, and a forked process holds nothing)",
            )
        return handles[-1]

    def owned(self) -> bool:
        """Whether this thread or task has a valid hold of the lock."""
        hold = self.registry.of(self.registry.env.owner(), self.name)
        return hold is not None and hold.is_valid(self.registry.env.now())

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
