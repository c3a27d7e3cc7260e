"""The words in which scenarios speak of locks: the public API, every method awaited.

The classes of `leaselock` for asyncio have this shape by themselves; those for threads are
brought into it by `threads`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    from leaselock import Finding, Holder, LockInfo, Waiter

P = ParamSpec("P")
R = TypeVar("R")
Told = Callable[[Any], object]


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
        """Seconds for which it can be believed."""
        ...

    @property
    def lost(self) -> bool:
        """Whether it cannot be believed any more."""
        ...

    def ensure(self) -> None:
        """Raise LeaseLost when it is lost."""
        ...

    def on_lost(self, callback: Told) -> None:
        """Have *callback* told of the loss."""
        ...

    async def extend(self, seconds: Any) -> None:
        """Have it end later."""
        ...

    async def release(self) -> None:
        """Give it back."""
        ...

    async def detach(self) -> None:
        """Let it outlive its client."""
        ...


class Lock(Protocol):
    """A lock by its name."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    async def acquire(self, timeout: Any = None) -> Lease | None:
        """Take it."""
        ...

    async def release(self) -> None:
        """Give back what was taken last."""
        ...

    async def locked(self) -> bool:
        """Whether anybody holds it."""
        ...

    def owned(self) -> bool:
        """Whether this thread or task holds it."""
        ...

    async def holder(self) -> Holder | None:
        """Who holds it."""
        ...

    async def waiters(self) -> list[Waiter]:
        """Who waits for it."""
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
    """A connection to a store."""

    def lock(self, *name: Any, **terms: Any) -> Lock:
        """Name a lock."""
        ...

    async def adopt(self, name: str, token: Any) -> Lease:
        """Take over a detached lease."""
        ...

    async def locks(self, pattern: str = "*") -> list[LockInfo]:
        """All locks held or waited for."""
        ...

    async def break_lock(self, name: str, *, token: Any = None) -> Holder | None:
        """Take a lock from its holder."""
        ...

    async def doctor(self) -> list[Finding]:
        """How the store is set up."""
        ...

    async def setup(self, *, dry: bool = False) -> list[str]:
        """Make what the store needs."""
        ...

    async def gc(self) -> int:
        """Remove what nobody needs."""
        ...

    async def close(self) -> None:
        """Release what is held, end what waits."""
        ...
