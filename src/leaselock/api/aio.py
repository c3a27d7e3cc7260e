"""The shell for asyncio. Every method is a docstring and one statement; the core does the rest."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from leaselock.api.connect import connect
from leaselock.core.client_core import ClientCore
from leaselock.core.validation import checked_body
from leaselock.drivers.aio import Aio
from leaselock.drivers.system_env import now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType
    from typing import Literal, Never

    from leaselock.api.connect import Store
    from leaselock.core.backend import Finding
    from leaselock.core.inspection import Holder, LockInfo, Waiter
    from leaselock.core.lease_handle import LeaseHandle
    from leaselock.core.mutex import Mutex

P = ParamSpec("P")
R = TypeVar("R")


class AsyncClient:
    """A connection to a store of locks, for asyncio.

    *store* is a URL; or a client of redis-py, valkey-py, kazoo or SQLAlchemy, which is read and
    not used; or a list of Redis masters, for a Redlock. Without one, ``$LEASELOCK_URL`` is used,
    else an embedded SQLite file. *label* is shown to people who look at what this client holds.
    *op_timeout* bounds each answer of the store, in seconds. *local_handoffs* is for the locks that do not
    say it themselves. Use it as a context manager, or call `close`. Nothing is asked of the store
    yet. Raises ValueError or TypeError for what names no store, ImportError with what to install.
    """

    def __init__(
        self,
        store: Store = None,
        *,
        label: str | None = None,
        op_timeout: float = 5.0,
        local_handoffs: int = 0,
    ) -> None:
        opened = connect(store, now, aio=True)
        self._driver = Aio(opened.nodes, opened.stores, opened.blocking, native=opened.native)
        self._service = ClientCore(
            self._driver,
            opened.backend,
            protocol=opened.protocol,
            label=label,
            op_timeout=op_timeout,
            local_handoffs=local_handoffs,
        )
        self._driver.forgotten = self._service.abandon
        self._url = self._driver.store = opened.shown

    @property
    def url(self) -> str:
        """The URL of the store, without its secrets."""
        return self._url

    def lock(
        self,
        name: str,
        *,
        lease: float = 30.0,
        renew: bool = True,
        timeout: float | None = None,
        reentrant: bool = True,
        protocol: str | None = None,
        label: str | None = None,
        local_handoffs: int | None = None,
        cached: bool = False,
        owner: Literal["lock"] | None = None,
        **unknown: Never,
    ) -> AsyncLock:
        """Name a lock; nothing is asked of the store yet.

        A grant lasts *lease* seconds and is renewed until released, unless *renew* is false.
        *timeout* bounds the wait for it, in seconds: None for ever, 0 not at all. The task that
        holds it may take it again, unless *reentrant* is false. With *owner* "lock" the lock object
        is the owner: any task may release it, and none may take it again before that. *protocol* is one of the store's
        ways of locking (default: the URL's, else the store's first), *label* for people who look.

        With *local_handoffs*, the tasks of this client that want the lock pass a lease among themselves
        without asking the store, so many times at most and for a tenth of a second, each with a
        fencing token of its own, before others have their turn. With *cached* this client keeps the
        lease after a release until anybody else asks, for half of its length at most, so that its
        next acquire asks nobody.

        Raises InvalidName for a text that cannot be a name, ValueError or TypeError for numbers out
        of range, ValueError for a protocol that the store does not know, and for *local_handoffs* or
        *cached* where it cannot reserve tokens.
        """
        return AsyncLock(
            self._driver,
            self._service.mutex(
                name,
                lease=lease,
                renew=renew,
                timeout=timeout,
                reentrant=reentrant,
                protocol=protocol,
                label=label,
                local_handoffs=local_handoffs,
                cached=cached,
                owner=owner,
                **unknown,
            ),
        )

    async def adopt(self, name: str, token: int) -> AsyncLease:
        """Take over a lease that was detached, by its fencing token; else raises NotHeld.

        It is not renewed: `extend` it. This, `locks` and `break_lock` see the locks of the protocol
        that the URL names, or else of the store's default.
        """
        return AsyncLease(self._driver, await self._driver.run(self._service.adopt(name, token)))

    async def locks(self, pattern: str = "*") -> list[LockInfo]:
        """List the locks that are held or waited for, whose names match the shell pattern."""
        return await self._driver.run(self._service.locks(pattern))

    async def break_lock(self, name: str, *, token: int | None = None) -> Holder | None:
        """Take a lock from its holder by force; None when it was free.

        With *token*, only that grant is broken, else NotHeld is raised. The holder is told at
        its next renewal; until then it works on, and only its fencing token stops it.
        """
        return await self._driver.run(self._service.break_lock(name, token))

    async def doctor(self) -> list[Finding]:
        """Examine how the store is set up, and whether that suits a lock."""
        return await self._driver.run(self._service.doctor())

    async def setup(self, *, dry: bool = False) -> list[str]:
        """Make what the store needs before it can be used, such as tables; say what was done.

        With *dry* nothing is done: the statements are for those who make tables by themselves.
        Doing it again does no harm. Empty where the store needs nothing.
        """
        return await self._driver.run(self._service.setup(dry))

    async def gc(self) -> int:
        """Remove records that nobody needs any more; say how many those were."""
        return await self._driver.run(self._service.gc())

    async def close(self) -> None:
        """Release what is held, end what waits, and close the store."""
        await self._driver.end(self._service.close())

    async def aclose(self) -> None:
        """Release what is held, end what waits, and close the store."""
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<leaselock.AsyncClient {self._url}{self._service.state()}>"


class AsyncLock:
    """A lock by its name. Each task that acquires it is a holder of its own."""

    def __init__(self, driver: Aio, mutex: Mutex) -> None:
        self._driver = driver
        self._mutex = mutex

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._mutex.name

    @overload
    async def acquire(self, timeout: None = None) -> AsyncLease: ...

    @overload
    async def acquire(self, timeout: float) -> AsyncLease | None: ...

    async def acquire(self, timeout: float | None = None, **unknown: Never) -> AsyncLease | None:
        """Take the lock; None when *timeout* seconds pass first, 0 does not wait.

        Without *timeout* the lock's own holds, and AcquireTimeout is raised. Raises StoreError when the store does not
        answer, LeaseLost when this task has lost a hold of it and not released it.
        """
        return AsyncLease.of(
            self._driver, await self._driver.run(self._mutex.acquire(timeout, **unknown))
        )

    def cancel(self) -> int:
        """End every `acquire` that waits through this object, with AcquireCancelled; say how many.

        It may be called from any thread or task. The lock can be acquired again afterwards.
        """
        return self._driver.ask(self._mutex.cancel)

    async def release(self) -> None:
        """Give back what this task took last; NotHeld if it holds nothing here."""
        await self._driver.run(self._mutex.release())

    async def locked(self) -> bool:
        """Say whether anybody holds the lock."""
        return await self._driver.run(self._mutex.holder()) is not None

    def owned(self) -> bool:
        """Say whether this task holds the lock and may believe so; asks nobody."""
        return self._mutex.owned()

    async def holder(self) -> Holder | None:
        """Say who holds the lock."""
        return await self._driver.run(self._mutex.holder())

    async def waiters(self) -> list[Waiter]:
        """Say who waits for the lock, in order."""
        return await self._driver.run(self._mutex.waiters())

    async def __aenter__(self) -> AsyncLease:
        return AsyncLease(
            self._driver, await self._driver.run(self._mutex.enter(id(sys._getframe(1))))
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._driver.run(self._mutex.leave(exception, id(sys._getframe(1))))

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate *function* to run under the lock; TypeError for one that would run later."""
        checked_body(function, awaited=True)

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return under_lock

    def __repr__(self) -> str:
        return f"<leaselock.AsyncLock {self.name!r} on {self._driver.store}{self._mutex.state()}>"


class AsyncLease:
    """One grant of a lock, good for as long as it is renewed."""

    def __init__(self, driver: Aio, handle: LeaseHandle) -> None:
        self._driver = driver
        self._handle = handle

    @classmethod
    def of(cls, driver: Aio, handle: LeaseHandle | None) -> AsyncLease | None:
        """The lease of a grant, if there was one."""
        return None if handle is None else cls(driver, handle)

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._handle.hold.claim.name

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier grant of this name."""
        return self._handle.hold.token

    @property
    def remaining(self) -> float:
        """Seconds for which the lease can be believed without another renewal."""
        return self._handle.remaining()

    @property
    def lost(self) -> bool:
        """Whether the lease can no longer be believed, though it was not released."""
        return self._handle.lost()

    def ensure(self) -> None:
        """Raise LeaseLost unless the lease can be believed, NotHeld once released; asks nobody."""
        self._handle.ensure()

    async def extend(self, seconds: float) -> None:
        """Have the lease end no sooner than *seconds* from now; LeaseLost if it is gone."""
        await self._driver.run(self._handle.extend(seconds))

    async def release(self) -> None:
        """Give the grant back; LeaseLost if it was lost, NotHeld if it was given back."""
        await self._driver.run(self._handle.release())

    async def detach(self) -> None:
        """Let the lease outlive this client: `AsyncClient.adopt` continues it by its token.

        It is not renewed any more. Raises Refused where a hold ends with a session (ZooKeeper,
        `row`, `advisory`), NotHeld for a nested acquisition.
        """
        await self._driver.run(self._handle.detach())

    async def make_inheritable(self) -> tuple[int, ...]:
        """Let the lock live as long as any child process that inherits the descriptors.

        From now on the lock passes on only when all of them are closed. Empty, and without
        effect, where the store cannot do that.
        """
        return await self._driver.run(self._handle.make_inheritable())

    def on_lost(self, callback: Callable[[AsyncLease], object]) -> None:
        """Have *callback* called with this lease when it is lost, in a task of its own."""
        self._driver.step(
            self._handle.on_lost, callback, self, functools.partial(AsyncLease, self._driver)
        )

    async def __aenter__(self) -> Self:
        return await self._driver.run(self._handle.begin_body(self))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._driver.run(self._handle.end_body(exception))

    def __repr__(self) -> str:
        return (
            f"<leaselock.AsyncLease {self.name!r} on {self._driver.store}, "
            f"token {self.token}, {self._handle.state()}>"
        )
