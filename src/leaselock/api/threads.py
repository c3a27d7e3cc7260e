"""The public interface for threads. Every method is a docstring and one statement."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar, overload

from leaselock.api.connect import connect
from leaselock.core.client_core import ClientCore
from leaselock.core.validation import checked_body
from leaselock.drivers.system_env import now
from leaselock.drivers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Literal, Never

    from leaselock.api.connect import Store
    from leaselock.core.backend import Finding
    from leaselock.core.inspection import Holder, LockInfo, Waiter
    from leaselock.core.lease_handle import LeaseHandle
    from leaselock.core.mutex import Mutex

P = ParamSpec("P")
R = TypeVar("R")


class Client:
    """A client of a lock store, for threads.

    *store* is a URL such as ``redis://localhost:6379/0`` or ``sqlite:///``; or a client of
    redis-py, valkey-py, kazoo or SQLAlchemy, whose settings are read; or a list of Redis servers,
    for Redlock. The default is ``$LEASELOCK_URL``, else an embedded SQLite file. *protocol* is the
    default of `lock`, and the one of `locks`, `break_lock` and `adopt`. *label* is a short text
    shown to users who inspect what this client holds. *op_timeout* limits the time for one
    answer of the store, in seconds. *local_handoffs* is the default of `lock`.

    The constructor does not connect. Use the client as a context manager, or call `close`. Raises
    ValueError or TypeError if *store* names no store, ImportError if its client library is missing.

    >>> with leaselock.Client("redis://localhost:6379/0") as client:
    ...     with client.lock("order:5", timeout=10) as lease:
    ...         charge(order, fence=lease.token)
    """

    def __init__(
        self,
        store: Store = None,
        *,
        protocol: str | None = None,
        label: str | None = None,
        op_timeout: float = 5.0,
        local_handoffs: int = 0,
    ) -> None:
        opened = connect(store, now, protocol=protocol)
        self._driver = Threads(opened.stores, opened.blocking)
        self._service = ClientCore(
            self._driver,
            opened.backend,
            protocol=opened.protocol,
            label=label,
            op_timeout=op_timeout,
            local_handoffs=local_handoffs,
        )
        self._driver.forgotten = self._service.abandon
        self._driver.last = self._service.close
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
    ) -> Lock:
        """Return the lock of that name. The store is not asked.

        *lease* is the length of a lease in seconds: the lock is freed so long after its holder has
        stopped renewing it. It is renewed until the release; with *renew* false it ends after
        *lease* seconds. *timeout* limits the wait, in seconds: None waits without limit, 0 does not
        wait. The thread that holds the lock may acquire it again, unless *reentrant* is false. With
        *owner* "lock" the lock object is the owner instead: any thread may release it, and none may
        acquire it again before that. *protocol* is one of the store's protocols (default: the one
        in the URL, else the store's first). *label* is a short text shown to users who inspect the
        lock.

        With *local_handoffs* the threads of this client hand a lease on among themselves without a
        request, at most so many times and for a tenth of a second, each with a fencing token of its
        own. With *cached* this client keeps the lease after a release until another client waits,
        for half of its length at most, so that the next acquire needs no request.

        Raises InvalidName if the name cannot be used, ValueError or TypeError for numbers out of
        range, a protocol that the store does not know, and *local_handoffs* or *cached* where
        the store cannot reserve tokens.
        """
        return Lock(
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

    def adopt(self, name: str, token: int) -> Lease:
        """Continue a lease that was detached, by its fencing token.

        Return the lease; raise NotHeld if there is none with that *token*. It is not renewed: call
        `extend`. This method, `locks` and `break_lock` see the locks of the client's default
        protocol.
        """
        return Lease(self._driver, self._driver.run(self._service.adopt(name, token)))

    def locks(self, pattern: str = "*") -> list[LockInfo]:
        """List the locks that are held or waited for and whose names match the shell *pattern*."""
        return self._driver.run(self._service.locks(pattern))

    def break_lock(self, name: str, *, token: int | None = None) -> Holder | None:
        """End the hold of a lock by force; return its holder, or None if the lock was free.

        With *token*, only the hold with that token is ended, and NotHeld is raised if there is
        another one. The holder learns of it at its next renewal. Until then it works on, and only
        its fencing token can stop it.
        """
        return self._driver.run(self._service.break_lock(name, token))

    def doctor(self) -> list[Finding]:
        """Examine the configuration of the store; return what was found."""
        return self._driver.run(self._service.doctor())

    def setup(self, *, dry: bool = False) -> list[str]:
        """Create what the store needs, such as tables; return the statements that were executed.

        With *dry* nothing is executed, and the statements are those that would be. Empty where the
        store needs nothing. Calling it again does no harm.
        """
        return self._driver.run(self._service.setup(dry))

    def gc(self) -> int:
        """Remove records that are no longer needed; return how many."""
        return self._driver.run(self._service.gc())

    def close(self) -> None:
        """Release all locks, end all waits, and disconnect from the store."""
        self._driver.end(self._service.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<leaselock.Client {self._url}{self._service.state()}>"


class Lock:
    """A lock, identified by its name in the store. `Client.lock` makes it.

    A thread that acquires it owns it. As a context manager it is acquired for the body:

    >>> with client.lock("order:5", timeout=10) as lease:
    ...     charge(order, fence=lease.token)

    AcquireTimeout is raised if the time passes first, LeaseLost at the end of the body if the lease
    was lost. A decorated function runs under the lock:

    >>> @client.lock("report")
    ... def report(): ...
    """

    def __init__(self, driver: Threads, mutex: Mutex) -> None:
        self._driver = driver
        self._mutex = mutex

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._mutex.name

    @overload
    def acquire(self, timeout: None = None) -> Lease: ...

    @overload
    def acquire(self, timeout: float) -> Lease | None: ...

    def acquire(self, timeout: float | None = None, **unknown: Never) -> Lease | None:
        """Acquire the lock; return a lease, or None when *timeout* seconds have passed.

        0 does not wait. Without *timeout* the lock's own is used, and AcquireTimeout is raised when
        it has passed. Raises StoreError if the store does not answer, LeaseLost if this thread has
        lost the lock and not released it yet, AlreadyHeld if it holds it and *reentrant* is false.

        >>> if lease := client.lock("order:5").acquire(timeout=2.5):
        ...     with lease: ...
        """
        return Lease.of(self._driver, self._driver.run(self._mutex.acquire(timeout, **unknown)))

    def cancel(self) -> int:
        """End every `acquire` that waits through this object, with AcquireCancelled; say how many.

        It may be called from any thread or task. The lock can be acquired again afterwards.
        """
        return self._driver.ask(self._mutex.cancel)

    def release(self) -> None:
        """Release what this thread acquired last through this lock; NotHeld if it holds nothing."""
        self._driver.run(self._mutex.release())

    def locked(self) -> bool:
        """Return whether the lock is held."""
        return self._driver.run(self._mutex.holder()) is not None

    def owned(self) -> bool:
        """Return whether this thread has a valid lease of the lock. The store is not asked."""
        return self._mutex.owned()

    def holder(self) -> Holder | None:
        """Return the holder of the lock, or None."""
        return self._driver.run(self._mutex.holder())

    def waiters(self) -> list[Waiter]:
        """Return the waiters for the lock, in the order in which they will be served."""
        return self._driver.run(self._mutex.waiters())

    def __enter__(self) -> Lease:
        return Lease(self._driver, self._driver.run(self._mutex.enter(id(sys._getframe(1)))))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._driver.run(self._mutex.leave(exception, id(sys._getframe(1))))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate *function* to run under the lock; TypeError if its body would run later."""
        checked_body(function, awaited=False)

        @functools.wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return under_lock

    def __repr__(self) -> str:
        return f"<leaselock.Lock {self.name!r} on {self._driver.store}{self._mutex.state()}>"


class Lease:
    """One grant of a lock, valid while it is renewed. `Lock.acquire` returns it.

    >>> lease = client.lock("order:5").acquire()
    >>> lease.ensure()                      # raises LeaseLost if it is not valid any more
    >>> charge(order, fence=lease.token)
    >>> lease.release()
    """

    def __init__(self, driver: Threads, handle: LeaseHandle) -> None:
        self._driver = driver
        self._handle = handle

    @classmethod
    def of(cls, driver: Threads, handle: LeaseHandle | None) -> Lease | None:
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
        """Seconds for which the lease stays valid without another renewal."""
        return self._handle.remaining()

    @property
    def lost(self) -> bool:
        """Whether the lease is not valid any more although it was not released."""
        return self._handle.lost()

    def ensure(self) -> None:
        """Raise LeaseLost unless the lease is valid, NotHeld after its release; ask no store."""
        self._handle.ensure()

    def extend(self, seconds: float) -> None:
        """Make the lease end no sooner than *seconds* from now; LeaseLost if it was lost."""
        self._driver.run(self._handle.extend(seconds))

    def release(self) -> None:
        """Release the lock; LeaseLost if the lease was lost, NotHeld if it was already released."""
        self._driver.run(self._handle.release())

    def detach(self) -> None:
        """Leave the lock held until its lease ends; `Client.adopt` continues it by its token.

        It is not renewed any more. Raises NotApplied where a hold ends with a session (ZooKeeper,
        `row`, `advisory`), NotHeld for a nested acquisition.
        """
        self._driver.run(self._handle.detach())

    def make_inheritable(self) -> tuple[int, ...]:
        """Let child processes inherit the lock; return the descriptors that they must inherit.

        From now on the lock is freed when all of these descriptors are closed. Empty, and without
        effect, where the store cannot do that.
        """
        return self._driver.run(self._handle.make_inheritable())

    def on_lost(self, callback: Callable[[Lease], object]) -> None:
        """Call *callback* with this lease when it is lost, in a thread of its own."""
        self._driver.step(
            self._handle.on_lost, callback, self, functools.partial(Lease, self._driver)
        )

    def __enter__(self) -> Self:
        return self._driver.run(self._handle.begin_body(self))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._driver.run(self._handle.end_body(exception))

    def __repr__(self) -> str:
        return (
            f"<leaselock.Lease {self.name!r} on {self._driver.store}, "
            f"token {self.token}, {self._handle.state()}>"
        )
