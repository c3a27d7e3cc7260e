"""The world of threads: what is awaited has been done when it returns, so nothing ever suspends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import leaselock
from leaselock.testing.conformance.world import Body, Other, World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from leaselock.testing.conformance.face import Client, Told

P = ParamSpec("P")
T = TypeVar("T")


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to its end a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a scenario awaited something that does not come from its world")


class InThreads(World):
    """Holders are threads."""

    driver = "threads"
    crowd = 100

    def connect(self, url: str, **terms: Any) -> Client:
        """A client of any store."""
        return ThreadClient(leaselock.Client(url, **terms))

    def spawn(self, body: Body[T], *arguments: Any, title: str | None = None) -> Other[T]:
        """Start a thread."""
        other: InThread[T] = InThread(self, body(*arguments), title)
        self.others.append(other)
        return other

    async def pause(self, seconds: float) -> None:
        """Let other threads run."""
        threading.Event().wait(seconds)

    def title(self) -> str:
        """The name of this thread."""
        return threading.current_thread().name

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it in this thread."""
        return finish(coroutine)


class InThread(Other[T]):
    """Another thread."""

    def __init__(self, world: World, body: Coroutine[Any, Any, T], title: str | None) -> None:
        super().__init__(world, body)
        self.thread = threading.Thread(
            target=lambda: finish(self.run()), name=title or "another", daemon=True
        )
        self.thread.start()

    def ended(self) -> bool:
        """Whether the thread is gone."""
        return not self.thread.is_alive()


class ThreadClient:
    """A `leaselock.Client` whose methods are awaited."""

    def __init__(self, client: leaselock.Client) -> None:
        self.client = client

    def lock(self, *name: Any, **terms: Any) -> ThreadLock:
        """Name a lock."""
        return ThreadLock(self.client.lock(*name, **terms))

    async def adopt(self, name: str, token: Any) -> ThreadLease:
        """Take over a detached lease."""
        return ThreadLease(self.client.adopt(name, token))

    async def locks(self, pattern: str = "*") -> list[leaselock.LockInfo]:
        """All locks held or waited for."""
        return self.client.locks(pattern)

    async def break_lock(self, name: str, *, token: Any = None) -> leaselock.Holder | None:
        """Take a lock from its holder."""
        return self.client.break_lock(name, token=token)

    async def doctor(self) -> list[leaselock.Finding]:
        """How the store is set up."""
        return self.client.doctor()

    async def setup(self, *, dry: bool = False) -> list[str]:
        """Make what the store needs."""
        return self.client.setup(dry=dry)

    async def gc(self) -> int:
        """Remove what nobody needs."""
        return self.client.gc()

    async def close(self) -> None:
        """Close."""
        self.client.close()


class ThreadLock:
    """A `leaselock.Lock` whose methods are awaited."""

    def __init__(self, lock: leaselock.Lock) -> None:
        self.lock = lock
        self.name = lock.name
        self.owned = lock.owned

    async def acquire(self, timeout: Any = None) -> ThreadLease | None:
        """Take it."""
        lease = self.lock.acquire(timeout)
        return None if lease is None else ThreadLease(lease)

    async def release(self) -> None:
        """Give back what was taken last."""
        self.lock.release()

    async def locked(self) -> bool:
        """Whether anybody holds it."""
        return self.lock.locked()

    async def holder(self) -> leaselock.Holder | None:
        """Who holds it."""
        return self.lock.holder()

    async def waiters(self) -> list[leaselock.Waiter]:
        """Who waits for it."""
        return self.lock.waiters()

    async def __aenter__(self) -> ThreadLease:
        return ThreadLease(self.lock.__enter__())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.lock.__exit__(kind, exception, traceback)

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
            return finish(function(*args, **kwargs))

        decorated = self.lock(blocking)

        async def awaited(*args: P.args, **kwargs: P.kwargs) -> T:
            return decorated(*args, **kwargs)

        return awaited


class ThreadLease:
    """A `leaselock.Lease` whose methods are awaited."""

    def __init__(self, lease: leaselock.Lease) -> None:
        self.lease = lease
        self.name = lease.name
        self.token = lease.token
        self.ensure = lease.ensure

    @property
    def remaining(self) -> float:
        """Seconds for which it can be believed."""
        return self.lease.remaining

    @property
    def lost(self) -> bool:
        """Whether it cannot be believed any more."""
        return self.lease.lost

    def on_lost(self, callback: Told) -> None:
        """Have *callback* told of the loss."""
        self.lease.on_lost(lambda lease: callback(self if lease is self.lease else lease))

    async def extend(self, seconds: Any) -> None:
        """Have it end later."""
        self.lease.extend(seconds)

    async def release(self) -> None:
        """Give it back."""
        self.lease.release()

    async def detach(self) -> None:
        """Let it outlive its client."""
        self.lease.detach()
