"""Several locks, acquired together: in one order for all clients, by one deadline, all or none.

The order is that of the names in UTF-8, so that two owners cannot wait for each other.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._core.client.lease_handle import LeaseHandle
from leaselock._core.client.lease_reference import Group, UnderWay
from leaselock._core.client.validation import checked_timeout, refuse, refuse_positional
from leaselock._core.contract.backend import STRENGTH
from leaselock._core.contract.effects import FOREVER
from leaselock._named_tuple import NamedTuple
from leaselock.errors import LeaselockError, NotHeld, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from leaselock._core.client.mutex import Mutex
    from leaselock._core.contract.backend import Busy
    from leaselock._core.contract.effects import Env


L = TypeVar("L")


class Member(NamedTuple):
    """One of the locks, and how many of its permits."""

    mutex: Mutex
    permits: int


class Refusal(NamedTuple):
    """The lock that was not granted in time, and why."""

    mutex: Mutex
    busy: Busy


def merged(mutexes: Iterable[Mutex]) -> list[Member]:
    """The locks in the order of their names. One that is named twice is acquired once, in the
    stronger mode; the permits of a semaphore add up.
    """
    members: dict[str, Member] = {}
    for mutex in mutexes:
        known = members.get(mutex.name)
        if known is None:
            members[mutex.name] = Member(mutex, 1)
            continue
        mode, other = mutex.options.mode, known.mutex.options.mode
        if (mode == "permits") != (other == "permits") or known.mutex.registry != mutex.registry:
            raise ValueError(f"{mutex.name!r} is named twice, as different kinds of lock")
        if mode == "permits":
            members[mutex.name] = Member(known.mutex, known.permits + 1)
        elif STRENGTH[mode] > STRENGTH[other]:
            members[mutex.name] = Member(mutex, 1)
    for mutex, permits in members.values():
        if mutex.options.limit and permits > mutex.options.limit:
            raise ValueError(f"{mutex.name!r} has fewer than {permits} permits")
    return [members[name] for name in sorted(members, key=str.encode)]


class Together:
    """Several locks of one client."""

    def __init__(self, env: Env, members: list[Member], timeout: float | None) -> None:
        self.env = env
        self.members = members
        self.timeout = timeout
        # Those of bodies of `with` that have not ended, as `Mutex.kept` has the lease of one lock.
        self.kept: dict[object, TogetherHandle] = {}
        # As `Mutex.kept_by_caller`.
        self.kept_by_caller = False

    def keep_by_caller(self) -> None:
        """Leave it to the callers of `acquire`, `try_acquire` and `enter` to keep the leases."""
        self.kept_by_caller = True
        for mutex, _ in self.members:
            mutex.kept_by_caller = True

    async def acquire(
        self, timeout: object, positional: tuple[object, ...] = (), **unknown: object
    ) -> TogetherHandle:
        """Acquire all; AcquireTimeout when *timeout* seconds have passed, by default its own."""
        refuse_positional("acquire", positional)
        refuse("acquire", unknown)
        limit = checked_timeout(timeout)
        if limit is None:
            limit = self.timeout
        found = await self._acquire(limit)
        if isinstance(found, Refusal):
            raise found.mutex.timed_out(found.busy, limit)
        return found

    async def try_acquire(
        self, timeout: object = 0.0, positional: tuple[object, ...] = (), **unknown: object
    ) -> TogetherHandle | None:
        """Acquire all; None when *timeout* seconds have passed."""
        refuse_positional("try_acquire", positional)
        refuse("try_acquire", unknown)
        found = await self._acquire(checked_timeout(timeout))
        return None if isinstance(found, Refusal) else found

    async def _acquire(self, limit: float | None) -> TogetherHandle | Refusal:
        deadline = FOREVER if limit is None else self.env.now() + limit
        taken = TogetherHandle()
        try:
            for mutex, permits in self.members:
                found = await mutex.obtain(deadline, permits)
                if isinstance(found, LeaseHandle):
                    taken.add(found)
                    continue
                await taken.release()
                return Refusal(mutex, found)
        except BaseException as error:
            await taken.withdraw_after(error)
            raise
        return taken

    async def enter(self, body_key: object = None) -> TogetherHandle:
        """Acquire all for the body of a `with`. *body_key* is as that of `Mutex.enter`."""
        taken = await self.acquire(None)
        taken.bodies, taken.body_key, taken.outer = self.kept, body_key, self.kept.get(body_key)
        taken.owner = self.env.owner().reference
        taken.add_interrupter()
        if not self.kept_by_caller:
            taken.keep()
        return taken

    async def leave(
        self,
        exception: BaseException | None,
        body_key: object = None,
        ending: UnderWay | None = None,
    ) -> None:
        """End the body with that key; else the one that this thread or task began last; else the
        one that any began last.
        """
        taken = self.kept.get(body_key)
        while taken is not None and taken.left_before(ending):
            taken = taken.outer
        if taken is None:
            if not self.kept:
                raise NotHeld(self.names(), f"cannot leave {self.names()}: they are not held")
            bodies, owner = list(self.kept.values()), self.env.owner().reference
            taken = next((each for each in reversed(bodies) if each.owner == owner), bodies[-1])
        taken.forget_body()
        await taken.leave(exception, ending)

    def names(self) -> str:
        """The names, for people."""
        return ", ".join(repr(member.mutex.name) for member in self.members)


class TogetherHandle:
    """The leases of several locks, which are one: it is lost when any of them is."""

    bodies: dict[object, TogetherHandle] | None = None
    """Where the locks keep it until its body ends, if it is that of a `with`."""
    body_key: object = None
    """Which body."""
    outer: TogetherHandle | None = None
    """That of the body around it which has the same key."""
    owner: object = None
    """Who has begun it."""

    def __init__(self) -> None:
        self.handles: list[LeaseHandle] = []
        # They end together. No lease refers to this object: a cycle would keep them alive.
        self.group = Group()

    def add(self, lease: LeaseHandle) -> None:
        """Another one was acquired."""
        lease.reference.group = self.group
        self.handles.append(lease)

    def keep(self) -> None:
        """Its caller has it now: the last step of an acquisition."""
        for handle in self.handles:
            handle.keep()
        if self.bodies is not None and self.group.left_by is None:
            self.bodies[self.body_key or self] = self

    def left_before(self, ending: UnderWay | None) -> bool:
        """Whether another end than *ending* has left its body, and was interrupted."""
        left_by = self.group.left_by
        return left_by is not None and left_by() is not ending

    def forget_body(self) -> None:
        """Its body ends."""
        bodies, key = self.bodies, self.body_key or self
        if bodies is not None:
            if self.outer is None:
                bodies.pop(key, None)
            else:
                bodies[key] = self.outer
        self.bodies = self.body_key = self.outer = None

    def names(self) -> str:
        """The names, for people."""
        return ", ".join(repr(handle.hold.claim.name) for handle in self.handles)

    def lost(self) -> bool:
        """Whether any lease was lost."""
        return any(handle.lost() for handle in self.handles)

    def remaining(self) -> float:
        """Seconds for which all leases stay valid without a renewal."""
        return min((handle.remaining() for handle in self.handles), default=0.0)

    def ensure(self) -> None:
        """Raise LeaseLost, or NotHeld after the release, unless all leases are valid."""
        for handle in self.handles:
            handle.ensure()

    def add_interrupter(self) -> None:
        """Interrupt the body that begins now when any lease is lost."""
        for handle in self.handles:
            handle.add_interrupter()

    async def begin_body(self, lease: L) -> L:
        """Begin the body of a `with` on these leases."""
        try:
            self.ensure()
            self.add_interrupter()
        except LeaselockError:
            raise
        except BaseException:
            self._drop()  # there will be no body, whose end releases them
            raise
        return lease

    async def extend(self, seconds: object) -> None:
        """Extend every lease."""
        for handle in self.handles:
            await handle.extend(seconds)

    async def release(self) -> None:
        """Release all, the last one first. The first error is raised when all are released."""
        ending = UnderWay()
        self.group.left_by = weakref.ref(ending)
        await self._each(lambda handle: handle.release(ending))

    async def leave(self, exception: BaseException | None, ending: UnderWay | None = None) -> None:
        """End the body of a `with`. Its own *exception* is never replaced."""
        ending = ending or UnderWay()
        self.group.left_by = weakref.ref(ending)
        await self._each(lambda handle: handle.end_body(exception, ending))

    async def _each(self, end: Callable[[LeaseHandle], Awaitable[None]]) -> None:
        first: LeaselockError | None = None
        try:
            for handle in reversed(self.handles):
                try:
                    await end(handle)
                except LeaselockError as error:
                    first = first or error
        except BaseException:
            # Cancelled or interrupted: the renewer releases the others.
            self._drop()
            raise
        if first is not None:
            raise first

    async def withdraw_after(self, error: BaseException) -> None:
        """Release what is not released yet, because another one failed with *error*: at once, as
        far as the store answers soon, otherwise through the renewer.
        """
        if isinstance(error, GeneratorExit | StoreError):
            self._drop()
        elif self.handles:
            registry = self.handles[0].registry
            until = registry.withdraw_by()
            await self._each(lambda handle: handle.withdraw(until))
            if left := registry.left([handle.hold for handle in self.handles]):
                error.add_note(f"leaselock: {left}")

    def _drop(self) -> None:
        """Release all that are not released yet where nothing can be awaited, or the store does not
        answer: through the renewer.
        """
        for handle in reversed(self.handles):
            if handle.interrupter is not None:
                handle.finish_interrupter(handle.interrupter, None)
            if handle.reference.ended_by is None:
                handle.drop()

    def on_lost(
        self, callback: Callable[[Any], object], lease: object, wrap: Callable[[Any], object]
    ) -> None:
        """Call *callback* with the user's lease when the first of the leases is lost."""
        calls = iter([callback])

        def once(_: Any) -> None:
            for first in calls:
                first(lease)

        for handle in self.handles:
            handle.on_lost(once, handle, lambda lost: lost)
