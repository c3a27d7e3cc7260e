"""Several locks, acquired together: in one order for all clients, by one deadline, all or none.

The order is that of the names in UTF-8, so that two owners cannot wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._core.backend import STRENGTH
from leaselock._core.effects import FOREVER
from leaselock._core.lease_handle import LeaseHandle
from leaselock._core.validation import checked_timeout, refuse
from leaselock._named_tuple import NamedTuple
from leaselock.errors import LeaselockError, NotHeld, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from leaselock._core.backend import Busy
    from leaselock._core.effects import Env
    from leaselock._core.mutex import Mutex


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
        self.entries: list[tuple[object, TogetherHandle]] = []

    async def acquire(self, timeout: object, **unknown: object) -> TogetherHandle:
        """Acquire all; AcquireTimeout when *timeout* seconds have passed, by default its own."""
        refuse("acquire", unknown)
        limit = checked_timeout(timeout)
        if limit is None:
            limit = self.timeout
        found = await self._acquire(limit)
        if isinstance(found, Refusal):
            raise found.mutex.timed_out(found.busy, limit)
        return found

    async def try_acquire(self, timeout: object = 0.0, **unknown: object) -> TogetherHandle | None:
        """Acquire all; None when *timeout* seconds have passed."""
        refuse("try_acquire", unknown)
        found = await self._acquire(checked_timeout(timeout))
        return None if isinstance(found, Refusal) else found

    async def _acquire(self, limit: float | None) -> TogetherHandle | Refusal:
        deadline = FOREVER if limit is None else self.env.now() + limit
        taken = TogetherHandle([])
        try:
            for mutex, permits in self.members:
                found = await mutex.obtain(deadline, permits)
                if isinstance(found, LeaseHandle):
                    taken.handles.append(found)
                    continue
                await taken.release()
                return Refusal(mutex, found)
        except BaseException as error:
            await taken.withdraw_after(error)
            raise
        return taken

    async def enter(self) -> TogetherHandle:
        """Acquire all for the body of a `with`."""
        taken = await self.acquire(None)
        self.entries.append((self.env.owner().reference, taken))
        taken.add_interrupter()
        return taken

    async def leave(self, exception: BaseException | None) -> None:
        """End the body that this thread or task began last; else the one that any began last."""
        if not self.entries:
            raise NotHeld(self.names(), f"cannot leave {self.names()}: they are not held")
        owner = self.env.owner().reference
        entry = next((e for e in reversed(self.entries) if e[0] == owner), self.entries[-1])
        self.entries.remove(entry)
        await entry[1].leave(exception)

    def names(self) -> str:
        """The names, for people."""
        return ", ".join(repr(member.mutex.name) for member in self.members)


class TogetherHandle:
    """The leases of several locks, which are one: it is lost when any of them is."""

    def __init__(self, handles: list[LeaseHandle]) -> None:
        self.handles = handles

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
        self.ensure()
        self.add_interrupter()
        return lease

    async def extend(self, seconds: object) -> None:
        """Extend every lease."""
        for handle in self.handles:
            await handle.extend(seconds)

    async def release(self) -> None:
        """Release all, the last one first. The first error is raised when all are released."""
        await self._each(lambda handle: handle.release())

    async def leave(self, exception: BaseException | None) -> None:
        """End the body of a `with`. Its own *exception* is never replaced."""
        await self._each(lambda handle: handle.end_body(exception))

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
            claims = [handle.hold.claim for handle in self.handles]
            if left := registry.pending_releases.left(claims):
                error.add_note(f"leaselock: {left}")

    def _drop(self) -> None:
        """Release all that are not released yet where nothing can be awaited, or the store does not
        answer: through the renewer.
        """
        for handle in reversed(self.handles):
            if handle.interrupter is not None:
                handle.finish_interrupter(handle.interrupter, None)
            if not handle.released:
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
