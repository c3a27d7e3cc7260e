"""The environment of a scenario: clients, locks, concurrent peers, processes, and waiting.

A scenario is written with `async` and `await`, and runs with both drivers. With threads nothing in
it ever suspends: each await is a blocking call, and a peer is a thread. With asyncio a peer is a
task. Scenarios do not sleep for an event; they call `wait_until`, which fails on timeout.
"""

from __future__ import annotations

import abc
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast

from leaselock._core.client.hold import RAN_OUT
from leaselock.errors import ClientClosed, LeaseLost, NotApplied, OutcomeUnknown
from testkit.conformance.child_process import Child, Fork

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.contract.backend import Backend, Busy, Claim, Grant
    from testkit.conformance.api_types import Client, Lease, Lock
    from testkit.conformance.store import Store

T = TypeVar("T")
Body = Callable[..., Coroutine[Any, Any, T]]

# When to interrupt a suspension: when it begins; when it ends, so that its result is lost; or when
# it begins, and the following one, too.
Moment = Literal["before", "after", "twice"]
# How many suspensions are left, from the given one on, when one is interrupted as it begins.
BEGINNINGS: dict[Moment, tuple[int, ...]] = {"before": (0,), "after": (), "twice": (0, -1)}

# Seconds to wait for an expected event; a limit for failures only.
TIMEOUT = 120.0
POLL_INTERVAL = 0.003
# Seconds to wait for an answer of the store; no scenario is about a store that gives none.
OP_TIMEOUT = 20.0
LONGEST_OP_TIMEOUT = 3600.0
# How much longer the leases and bounds of the next try are.
SLOWER = 3.0


class NotInTime(AssertionError):
    """Something did not happen in time."""


class Peer(abc.ABC, Generic[T]):
    """A concurrent thread or task that runs a coroutine function."""

    def __init__(self, harness: Harness, body: Coroutine[Any, Any, T]) -> None:
        self.harness = harness
        self.body = body
        self.result: list[T] = []
        self.error: BaseException | None = None

    async def run(self) -> None:
        """Run the body, and keep its result or exception."""
        try:
            self.result.append(await self.body)
        except BaseException as error:
            # Any exception is raised again by `join`.
            self.error = error

    @abc.abstractmethod
    def ended(self) -> bool:
        """Return whether the thread or task has ended."""

    def cancel(self) -> None:
        """Cancel it; only a task can be cancelled."""
        raise RuntimeError("a thread cannot be cancelled")

    async def end(self) -> BaseException | None:
        """Wait for its end, and return its exception or None."""
        await self.harness.wait_until(self.ended)
        error, self.error = self.error, None
        return error

    async def join(self) -> T:
        """Wait for its end; return its result or raise its exception."""
        error = await self.end()
        if error is not None:
            raise error
        return self.result[0]


class CountedTries:
    """The backend of a registry, whose acquire requests are counted."""

    def __init__(self, registry: ClaimRegistry) -> None:
        self.backend = registry.backend
        self.began = time.monotonic()
        self.count = 0
        registry.backend = cast("Backend", self)

    def acquire(self, *arguments: Any, **named: Any) -> Any:
        """Send one."""
        self.count += 1
        return self.backend.acquire(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


class Outage:
    """The backend of a registry whose store cannot be reached to acquire locks, until `over`."""

    def __init__(self, registry: ClaimRegistry) -> None:
        self.backend = registry.backend
        self.over = False
        self.failed = 0
        registry.backend = cast("Backend", self)

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """Refuse a request, or send it."""
        if self.over:
            return await self.backend.acquire(claim, wait=wait, until=until)
        self.failed += 1
        raise NotApplied("the store is out of reach", "unreachable")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


class Harness(abc.ABC):
    """One run of one scenario."""

    driver: ClassVar[str]
    many: ClassVar[int]
    """The number of peers in a scenario about many."""

    def __init__(self, store: Store, url: str, folder: Path) -> None:
        self.store = store
        self.url = url
        self.folder = folder
        self.clients: list[Client] = []
        self.peers: list[Peer[Any]] = []
        self.abandoned = 0
        self.children: list[Child | Fork] = []
        self.closed = False
        self.first = self.client()

    def client(self, **options: Any) -> Client:
        """Return a further client of the same store."""
        usual = {"op_timeout": min(LONGEST_OP_TIMEOUT, OP_TIMEOUT * self.store.pace)}
        client = self.connect(self.url, **usual | options)
        self.clients.append(client)
        return client

    def count_tries(self, client: Client) -> CountedTries:
        """Count the acquire requests that *client*, which has no lock yet, sends from now on."""
        return CountedTries(client._core.context(None).registry)

    def outage(self, client: Client) -> Outage:
        """Begin an outage for *client*, which has no lock yet."""
        return Outage(client._core.context(None).registry)

    def lock(self, name: str, **options: Any) -> Lock:
        """Return a lock of the first client."""
        return self.first.lock(name, **options)

    @abc.abstractmethod
    def connect(self, url: str, **options: Any) -> Client:
        """Return a client of any store; the scenario must close it."""

    @abc.abstractmethod
    def spawn(self, body: Body[T], *arguments: Any, title: str | None = None) -> Peer[T]:
        """Start a peer that runs *body*."""

    @abc.abstractmethod
    async def interrupt(
        self,
        client: Client,
        operation: Callable[[], Coroutine[Any, Any, object]],
        at: int,
        moment: Moment,
    ) -> BaseException | None:
        """Run an operation of *client* in this thread or task, and interrupt it at its *at*-th
        suspension. Return what it was interrupted by; None if it ended before.
        """

    @abc.abstractmethod
    async def pause(self, seconds: float) -> None:
        """Wait, and let other threads or tasks run."""

    @abc.abstractmethod
    def current_name(self) -> str:
        """Return the name of this thread or task."""

    @abc.abstractmethod
    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of a scenario from outside."""

    def process(self, body: Body[Any], *arguments: Any, driver: str | None = None) -> Child:
        """Start a process that runs *body*, a module-level function, in a harness of its own."""
        child = Child(self, driver or self.driver, body, arguments)
        self.children.append(child)
        return child

    def fork(self, body: Body[None]) -> Fork:
        """Fork this process; the child runs *body*."""
        fork = Fork(self, body)
        self.children.append(fork)
        return fork

    def now(self) -> float:
        """Return the time of the monotonic clock, in seconds."""
        return time.monotonic()

    async def wait_until(
        self, condition: Callable[[], bool | Awaitable[bool]], within: float = TIMEOUT
    ) -> None:
        """Wait until *condition* is true; NotInTime if that takes longer than *within* seconds."""
        deadline = self.now() + within
        while not await _evaluate(condition):
            if self.now() >= deadline:
                raise NotInTime(f"not within {within} s: {inspect.getsource(condition).strip()}")
            if self.closed:
                raise ClientClosed("the scenario is over")
            for child in self.children:
                child.check()
            await self.pause(POLL_INTERVAL)

    async def must_acquire(self, lock: Lock, timeout: float | None = TIMEOUT) -> Lease:
        """Acquire *lock*, which must succeed."""
        began = self.now()
        lease = await (lock.try_acquire(timeout=timeout) if timeout != 0 else self.try_once(lock))
        if lease is None:
            raise NotInTime(f"{lock.name!r} was not granted for {self.now() - began:.3f} s")
        return lease

    async def try_once(self, lock: Lock, timeout: float = 0.0) -> Lease | None:
        """Acquire *lock* without waiting, or for a short time.

        A client gives the store a second to answer such a request, in which it may have to connect,
        too. On a busy machine that may take longer; then the request is repeated.
        """
        ended = self.now() + TIMEOUT
        while True:
            try:
                return await lock.try_acquire(timeout=timeout)
            except (NotApplied, OutcomeUnknown):
                if self.now() > ended:
                    raise

    async def wait_for_waiters(self, lock: Lock, count: int, within: float = TIMEOUT) -> None:
        """Wait until *lock* has *count* waiters; NotInTime after *within* seconds."""

        async def waiting() -> bool:
            return len(await lock.waiters()) == count

        await self.wait_until(waiting, within)

    async def retry_if_slow(self, tries: int, attempt: Callable[[str], Awaitable[None]]) -> None:
        """Repeat an attempt that failed because the machine was busy.

        Each try has a lock of its own, and longer leases and bounds than the previous one. It may
        fail by NotInTime, or by a lease that expired because its renewal was sent too late. What
        the peers of a failed try raise is of no interest.
        """
        for left in reversed(range(tries)):
            try:
                await attempt(f"try {tries - left}")
                return
            except (NotInTime, LeaseLost) as error:
                taken = isinstance(error, LeaseLost) and not error.reason.startswith(RAN_OUT)
                if taken or not left:
                    raise
                self.store = self.store.slower(SLOWER)
                self.abandoned = len(self.peers)
                for child in self.children:
                    child.abandoned = True

    def check_elapsed(self, since: float, seconds: float) -> None:
        """Raise NotInTime if more than *seconds*, scaled by the pace, have passed *since*."""
        self.check_duration(self.now() - since, seconds)

    def check_duration(self, passed: float, seconds: float) -> None:
        """Raise NotInTime if *passed* is more than *seconds*, scaled by the pace."""
        bound = seconds * self.store.pace
        if passed > bound:
            raise NotInTime(f"{passed:.3f} s passed, more than {bound:.3f} s")

    async def run_and_close(self, body: Coroutine[Any, Any, T]) -> T:
        """Run a scenario, and then clean up."""
        try:
            return await body
        finally:
            await self.close()

    async def close(self) -> None:
        """End everything that the scenario has started."""
        self.closed = True
        for child in self.children:
            child.close()
        for client in self.clients:
            await client.close()
        for number, peer in enumerate(self.peers):
            while not peer.ended():
                await self.pause(POLL_INTERVAL)
            error = peer.error if number >= self.abandoned else None
            if error is not None and not isinstance(error, ClientClosed):
                raise error


async def _evaluate(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    result = condition()
    return result if isinstance(result, bool) else await result
