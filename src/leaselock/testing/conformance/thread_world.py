"""The world of threads: an awaited call blocks until its end, so no coroutine ever suspends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import leaselock
from leaselock.testing.conformance.world import Body, Peer, World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from leaselock.core.client_core import ClientCore
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

    def core_of(self, client: Any) -> ClientCore:
        """Return the core of a client."""
        core: ClientCore = client.client._core
        return core

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

    def rwlock(self, *name: Any, **options: Any) -> ThreadRWLock:
        """Return a read/write lock."""
        return ThreadRWLock(self.client.rwlock(*name, **options))

    def semaphore(self, *name: Any, **options: Any) -> ThreadSemaphore:
        """Return a semaphore."""
        return ThreadSemaphore(self.client.semaphore(*name, **options))

    def lock_all(self, locks: Any, **options: Any) -> ThreadLockAll:
        """Return several locks."""
        members = [lock.lock if isinstance(lock, ThreadLock) else lock for lock in locks]
        return ThreadLockAll(self.client.lock_all(members, **options))

    def election(self, name: str, **options: Any) -> ThreadElection:
        """Return an election."""
        return ThreadElection(self.client.election(name, **options))

    async def once(self, name: str, **options: Any) -> ThreadLease | None:
        """Acquire a lock once per period."""
        lease = self.client.once(name, **options)
        return None if lease is None else ThreadLease(lease)

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


class ThreadBody:
    """What `async with` does at the end of a body: what `with` does in a thread."""

    body: Any

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.body.__exit__(kind, exception, traceback)


class ThreadLock(ThreadBody):
    """A `leaselock.Lock` whose methods are awaited."""

    def __init__(self, lock: leaselock.Lock) -> None:
        self.lock = self.body = lock
        self.name = lock.name
        self.owned = lock.owned
        self.cancel = lock.cancel

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

    async def holders(self) -> list[leaselock.Holder]:
        """Return all holders."""
        return self.lock.holders()

    async def waiters(self) -> list[leaselock.Waiter]:
        """Return the waiters."""
        return self.lock.waiters()

    def watch(self) -> ThreadChanges:
        """Return an iterator over its holders."""
        return ThreadChanges(self.lock.watch())

    async def __aenter__(self) -> ThreadLease:
        return ThreadLease(self.lock.__enter__())

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
            return finish(function(*args, **kwargs))

        decorated = self.lock(blocking)

        async def awaited(*args: P.args, **kwargs: P.kwargs) -> T:
            return decorated(*args, **kwargs)

        return awaited


class ThreadChanges:
    """A `leaselock.Changes` whose steps are awaited."""

    def __init__(self, changes: leaselock.Changes) -> None:
        self.changes = changes

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> leaselock.LockChange:
        for change in self.changes:
            return change
        raise StopAsyncIteration


class ThreadRWLock:
    """A `leaselock.RWLock` whose sides are awaited."""

    def __init__(self, lock: leaselock.RWLock) -> None:
        self.read = ThreadLock(lock.read)
        self.write = ThreadLock(lock.write)
        self.whole = lock

    @property
    def update(self) -> ThreadLock:
        """The side that can be upgraded."""
        return ThreadLock(self.whole.update)


class ThreadSemaphore(ThreadLock):
    """A `leaselock.Semaphore` whose methods are awaited."""

    def __init__(self, lock: leaselock.Semaphore) -> None:
        super().__init__(lock)
        self.semaphore = lock

    async def acquire(self, timeout: Any = None, permits: Any = 1) -> ThreadLease | None:
        """Acquire permits."""
        lease = self.semaphore.acquire(timeout, permits)
        return None if lease is None else ThreadLease(lease)

    async def available(self) -> int:
        """Return how many permits are free."""
        return self.semaphore.available()

    async def resize(self, permits: Any) -> None:
        """Change the number of permits."""
        self.semaphore.resize(permits)


class ThreadLockAll(ThreadBody):
    """A `leaselock.LockAll` whose methods are awaited."""

    def __init__(self, locks: leaselock.LockAll) -> None:
        self.locks = self.body = locks

    async def acquire(self, timeout: Any = None) -> ThreadLeases | None:
        """Acquire all."""
        leases = self.locks.acquire(timeout)
        return None if leases is None else ThreadLeases(leases)

    async def __aenter__(self) -> ThreadLeases:
        return ThreadLeases(self.locks.__enter__())


class ThreadLeases:
    """A `leaselock.Leases` whose methods are awaited."""

    def __init__(self, leases: leaselock.Leases) -> None:
        self.whole = leases
        self.ensure = leases.ensure
        self.on_lost = leases.on_lost

    @property
    def leases(self) -> list[ThreadLease]:
        """Each lease."""
        return [ThreadLease(lease) for lease in self.whole.leases]

    @property
    def lost(self) -> bool:
        """Whether any is lost."""
        return self.whole.lost

    async def extend(self, seconds: Any) -> None:
        """Extend all."""
        self.whole.extend(seconds)

    async def release(self) -> None:
        """Release all."""
        self.whole.release()


class ThreadElection:
    """A `leaselock.Election` whose methods are awaited."""

    def __init__(self, election: leaselock.Election) -> None:
        self.election = election
        self.name = election.name

    def lead(self) -> ThreadCampaign:
        """Return a campaign."""
        return ThreadCampaign(self.election.lead())

    async def run(self, function: Callable[[ThreadLease], Coroutine[Any, Any, T]]) -> T | None:
        """Call *function* whenever this client leads."""
        return self.election.run(lambda lease: finish(function(ThreadLease(lease))))

    async def leader(self) -> leaselock.Holder | None:
        """Return the leader."""
        return self.election.leader()

    async def resign(self) -> bool:
        """Resign."""
        return self.election.resign()

    def watch(self) -> ThreadChanges:
        """Return an iterator over the leaders."""
        return ThreadChanges(self.election.watch())


class ThreadCampaign(ThreadBody):
    """A `leaselock.Campaign` as an asynchronous context manager."""

    def __init__(self, campaign: leaselock.Campaign) -> None:
        self.campaign = self.body = campaign

    async def __aenter__(self) -> ThreadLease:
        return ThreadLease(self.campaign.__enter__())


class ThreadLease:
    """A `leaselock.Lease` whose methods are awaited."""

    def __init__(self, lease: leaselock.Lease) -> None:
        self.lease = lease
        self.name = lease.name
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

    @property
    def token(self) -> int:
        """The fencing token."""
        return self.lease.token

    async def upgrade(self, timeout: Any = None) -> bool:
        """Make it exclusive."""
        return self.lease.upgrade(timeout)

    async def detach(self) -> None:
        """Detach it from its client."""
        self.lease.detach()
