"""The world of threads: an awaited call blocks until its end, so no coroutine ever suspends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import leaselock
from leaselock.testing.conformance.world import Body, Peer, World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from leaselock.testing.conformance.api_types import Client, LossCallback

P = ParamSpec("P")
T = TypeVar("T")


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a scenario awaited something that is not part of its world")


class ThreadWorld(World):
    """Peers are threads."""

    driver = "threads"
    many = 100

    def connect(self, url: str, **options: Any) -> Client:
        """Return a client of any store."""
        return ThreadClient(leaselock.Client(url, **options))

    def spawn(self, body: Body[T], *arguments: Any, title: str | None = None) -> Peer[T]:
        """Start a thread."""
        other: ThreadPeer[T] = ThreadPeer(self, body(*arguments), title)
        self.peers.append(other)
        return other

    async def pause(self, seconds: float) -> None:
        """Let other threads run."""
        threading.Event().wait(seconds)

    def current_name(self) -> str:
        """Return the name of this thread."""
        return threading.current_thread().name

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it in this thread."""
        return finish(coroutine)


class ThreadPeer(Peer[T]):
    """A peer that is a thread."""

    def __init__(self, world: World, body: Coroutine[Any, Any, T], title: str | None) -> None:
        super().__init__(world, body)
        self.thread = threading.Thread(
            target=lambda: finish(self.run()), name=title or "another", daemon=True
        )
        self.thread.start()

    def ended(self) -> bool:
        """Return whether the thread has ended."""
        return not self.thread.is_alive()


class ThreadClient:
    """A `leaselock.Client` whose methods are awaited."""

    def __init__(self, client: leaselock.Client) -> None:
        self.client = client

    def lock(self, *name: Any, **options: Any) -> ThreadLock:
        """Return a lock."""
        return ThreadLock(self.client.lock(*name, **options))

    async def adopt(self, name: str, token: Any) -> ThreadLease:
        """Adopt a detached lease."""
        return ThreadLease(self.client.adopt(name, token))

    async def locks(self, pattern: str = "*") -> list[leaselock.LockInfo]:
        """Return all locks that are held or waited for."""
        return self.client.locks(pattern)

    async def break_lock(self, name: str, *, token: Any = None) -> leaselock.Holder | None:
        """Release a lock by force."""
        return self.client.break_lock(name, token=token)

    async def doctor(self) -> list[leaselock.Finding]:
        """Check the store's configuration."""
        return self.client.doctor()

    async def setup(self, *, dry: bool = False) -> list[str]:
        """Create what the store needs."""
        return self.client.setup(dry=dry)

    async def gc(self) -> int:
        """Remove records that are no longer needed."""
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
        """Acquire it."""
        lease = self.lock.acquire(timeout)
        return None if lease is None else ThreadLease(lease)

    async def release(self) -> None:
        """Release the last acquired lease."""
        self.lock.release()

    async def locked(self) -> bool:
        """Return whether it is held."""
        return self.lock.locked()

    async def holder(self) -> leaselock.Holder | None:
        """Return the holder."""
        return self.lock.holder()

    async def waiters(self) -> list[leaselock.Waiter]:
        """Return the waiters."""
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
        """The seconds for which it is still valid."""
        return self.lease.remaining

    @property
    def lost(self) -> bool:
        """Whether it is no longer valid."""
        return self.lease.lost

    def on_lost(self, callback: LossCallback) -> None:
        """Call *callback* on loss."""
        self.lease.on_lost(lambda lease: callback(self if lease is self.lease else lease))

    async def extend(self, seconds: Any) -> None:
        """Extend it."""
        self.lease.extend(seconds)

    async def release(self) -> None:
        """Release it."""
        self.lease.release()

    async def detach(self) -> None:
        """Detach it from its client."""
        self.lease.detach()
