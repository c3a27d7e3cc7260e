"""The types of clients, locks and leases in scenarios: the public API with awaitable methods.

The asyncio classes of `leaselock` have these types; `thread_world` wraps the blocking ones.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    from leaselock import Finding, Holder, LockInfo, Waiter

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


class Lock(Protocol):
    """A named lock."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    async def acquire(self, timeout: Any = None) -> Lease | None:
        """Acquire it."""
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

    async def waiters(self) -> list[Waiter]:
        """Return the waiters."""
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


class Client(Protocol):
    """A client of a store."""

    def lock(self, *name: Any, **options: Any) -> Lock:
        """Return a lock."""
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
