"""The types of clients, locks and leases in scenarios: the public API with awaitable methods.

The asyncio classes of `leaselock` have these types; `thread_world` wraps the blocking ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from leaselock import Finding, Holder, LockChange, LockInfo, Waiter

P = ParamSpec("P")
R = TypeVar("R")
LossCallback = Callable[[Any], object]


class Lease(Protocol):
    """One grant of a lock."""

    @property
    def name(self) -> str:
        """The name of the lock."""
        ...

    @property
    def token(self) -> int:
        """The fencing token."""
        ...

    @property
    def remaining(self) -> float:
        """The seconds for which it is still valid."""
        ...

    @property
    def lost(self) -> bool:
        """Whether it is no longer valid."""
        ...

    def ensure(self) -> None:
        """Raise LeaseLost if it is lost."""
        ...

    def on_lost(self, callback: LossCallback) -> None:
        """Call *callback* on loss."""
        ...

    async def extend(self, seconds: Any) -> None:
        """Extend it."""
        ...

    async def release(self) -> None:
        """Release it."""
        ...

    async def detach(self) -> None:
        """Detach it from its client."""
        ...

    async def upgrade(self, timeout: Any = None) -> bool:
        """Make it exclusive."""
        ...


class Lock(Protocol):
    """A named lock."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    async def acquire(self, timeout: Any = None) -> Lease | None:
        """Acquire it."""
        ...

    def cancel(self) -> int:
        """End the waits through this object."""
        ...

    async def release(self) -> None:
        """Release the last acquired lease."""
        ...

    async def locked(self) -> bool:
        """Return whether it is held."""
        ...

    def owned(self) -> bool:
        """Return whether this thread or task holds it."""
        ...

    async def holder(self) -> Holder | None:
        """Return the holder."""
        ...

    async def holders(self) -> list[Holder]:
        """Return all holders."""
        ...

    async def waiters(self) -> list[Waiter]:
        """Return the waiters."""
        ...

    def watch(self) -> AsyncIterator[LockChange]:
        """Return an iterator over its holders."""
        ...

    async def __aenter__(self) -> Lease: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...


class RWLock(Protocol):
    """A read/write lock."""

    @property
    def read(self) -> Lock:
        """The shared side."""
        ...

    @property
    def write(self) -> Lock:
        """The exclusive side."""
        ...

    @property
    def update(self) -> Lock:
        """The side that can be upgraded."""
        ...


class Semaphore(Lock, Protocol):
    """A semaphore."""

    async def acquire(self, timeout: Any = None, permits: Any = 1) -> Lease | None:
        """Acquire permits."""
        ...

    async def available(self) -> int:
        """Return how many permits are free."""
        ...

    async def resize(self, permits: Any) -> None:
        """Change the number of permits."""
        ...


class Leases(Protocol):
    """The leases of several locks."""

    @property
    def leases(self) -> Sequence[Lease]:
        """Each lease."""
        ...

    @property
    def lost(self) -> bool:
        """Whether any is lost."""
        ...

    def ensure(self) -> None:
        """Raise LeaseLost if any is lost."""
        ...

    def on_lost(self, callback: LossCallback) -> None:
        """Call *callback* on the first loss."""
        ...

    async def extend(self, seconds: Any) -> None:
        """Extend all."""
        ...

    async def release(self) -> None:
        """Release all."""
        ...


class LockAll(Protocol):
    """Several locks."""

    async def acquire(self, timeout: Any = None) -> Leases | None:
        """Acquire all."""
        ...

    async def __aenter__(self) -> Leases: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Election(Protocol):
    """The election of a leader."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    def lead(self) -> AbstractAsyncContextManager[Lease]:
        """Return a campaign."""
        ...

    async def run(self, function: Callable[[Any], Coroutine[Any, Any, R]]) -> R | None:
        """Call *function* whenever this client leads."""
        ...

    async def leader(self) -> Holder | None:
        """Return the leader."""
        ...

    async def resign(self) -> bool:
        """Resign."""
        ...

    def watch(self) -> AsyncIterator[LockChange]:
        """Return an iterator over the leaders."""
        ...


class Client(Protocol):
    """A client of a store."""

    def lock(self, *name: Any, **options: Any) -> Lock:
        """Return a lock."""
        ...

    def rwlock(self, *name: Any, **options: Any) -> RWLock:
        """Return a read/write lock."""
        ...

    def semaphore(self, *name: Any, **options: Any) -> Semaphore:
        """Return a semaphore."""
        ...

    def lock_all(self, locks: Any, **options: Any) -> LockAll:
        """Return several locks."""
        ...

    def election(self, name: str, *, lease: float = ..., label: str | None = ...) -> Election:
        """Return an election."""
        ...

    async def once(self, name: str, *, every: float, align: bool = False) -> Lease | None:
        """Acquire a lock once per period."""
        ...

    async def adopt(self, name: str, token: Any) -> Lease:
        """Adopt a detached lease."""
        ...

    async def locks(self, pattern: str = "*") -> list[LockInfo]:
        """Return all locks that are held or waited for."""
        ...

    async def break_lock(self, name: str, *, token: Any = None) -> Holder | None:
        """Release a lock by force."""
        ...

    async def doctor(self) -> list[Finding]:
        """Check the store's configuration."""
        ...

    async def setup(self, *, dry: bool = False) -> list[str]:
        """Create what the store needs."""
        ...

    async def gc(self) -> int:
        """Remove records that are no longer needed."""
        ...

    async def close(self) -> None:
        """Release all locks and end all waits."""
        ...
