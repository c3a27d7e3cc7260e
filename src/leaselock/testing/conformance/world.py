"""What a scenario may do, whichever way it is run: take locks, start others, wait for what happens.

A scenario is written with `async` and `await`. In threads nothing in it ever suspends: each
await is a call that blocks, and another holder is another thread. In asyncio it is a task.
Nobody sleeps to let something happen; `until` waits for it, and fails when it does not come.
"""

from __future__ import annotations

import abc
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from leaselock.core.renewer import RAN_OUT
from leaselock.errors import ClientClosed, LeaseLost
from leaselock.testing.conformance.child import Child, Fork

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock.testing.conformance.face import Client, Lease, Lock
    from leaselock.testing.conformance.store import Store

T = TypeVar("T")
Body = Callable[..., Coroutine[Any, Any, T]]

# How long to wait for what must happen: it only bounds a failure.
PATIENCE = 120.0
LOOK_EVERY = 0.003
# How long a client waits for an answer: no scenario is about a server that gives none.
OP_TIMEOUT = 20.0


class Late(AssertionError):
    """Something did not happen in time."""


class Other(abc.ABC, Generic[T]):
    """Another holder, running a body of its own."""

    def __init__(self, world: World, body: Coroutine[Any, Any, T]) -> None:
        self.world = world
        self.body = body
        self.result: list[T] = []
        self.error: BaseException | None = None

    async def run(self) -> None:
        """Run the body, and keep what comes of it."""
        try:
            self.result.append(await self.body)
        except BaseException as error:
            # Whatever it is, it belongs to whoever joins.
            self.error = error

    @abc.abstractmethod
    def ended(self) -> bool:
        """Whether it is gone, as a thread or task."""

    def cancel(self) -> None:
        """Cancel what it does, where that can be done."""
        raise RuntimeError("a thread cannot be cancelled")

    async def end(self) -> BaseException | None:
        """Wait for its end; what did it fail with?"""
        await self.world.until(self.ended)
        error, self.error = self.error, None
        return error

    async def join(self) -> T:
        """Wait for its end, and give what its body returned; or raise what it raised."""
        error = await self.end()
        if error is not None:
            raise error
        return self.result[0]


class World(abc.ABC):
    """One run of one scenario."""

    driver: ClassVar[str]
    crowd: ClassVar[int]
    """How many holders at once are many."""

    def __init__(self, store: Store, url: str, folder: Path) -> None:
        self.store = store
        self.url = url
        self.folder = folder
        self.clients: list[Client] = []
        self.others: list[Other[Any]] = []
        self.children: list[Child | Fork] = []
        self.closed = False
        self.first = self.client()

    def client(self, **terms: Any) -> Client:
        """A further client of the same store."""
        usual = {
            "local_handoffs": self.store.local_handoffs,
            "op_timeout": OP_TIMEOUT * self.store.pace,
        }
        client = self.connect(self.url, **usual | terms)
        self.clients.append(client)
        return client

    def lock(self, name: str, **terms: Any) -> Lock:
        """A lock of the first client."""
        return self.first.lock(name, **terms)

    @abc.abstractmethod
    def connect(self, url: str, **terms: Any) -> Client:
        """A client of any store, which the scenario itself closes."""

    @abc.abstractmethod
    def spawn(self, body: Body[T], *arguments: Any, title: str | None = None) -> Other[T]:
        """Start another holder, which runs *body*."""

    @abc.abstractmethod
    async def pause(self, seconds: float) -> None:
        """Let the others run."""

    @abc.abstractmethod
    def title(self) -> str:
        """The name of this thread or task."""

    @abc.abstractmethod
    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run from outside of this world what is written for it."""

    def process(self, body: Body[Any], *arguments: Any, driver: str | None = None) -> Child:
        """Start a process that runs *body*, a function of a module, in a world of its own."""
        child = Child(self, driver or self.driver, body, arguments)
        self.children.append(child)
        return child

    def fork(self, body: Body[None]) -> Fork:
        """Fork this process; the child runs *body* with everything that it has inherited."""
        fork = Fork(self, body)
        self.children.append(fork)
        return fork

    def now(self) -> float:
        """Seconds, by a clock that nobody sets."""
        return time.monotonic()

    async def until(
        self, condition: Callable[[], bool | Awaitable[bool]], within: float = PATIENCE
    ) -> None:
        """Wait until *condition* is true; Late when it does not come true *within* seconds."""
        deadline = self.now() + within
        while not await _answer(condition):
            if self.now() >= deadline:
                raise Late(f"not within {within} s: {inspect.getsource(condition).strip()}")
            if self.closed:
                raise ClientClosed("the scenario is over")
            await self.pause(LOOK_EVERY)

    async def take(self, lock: Lock, timeout: float | None = PATIENCE) -> Lease:
        """Acquire *lock*, which must succeed."""
        began = self.now()
        lease = await lock.acquire(timeout)
        if lease is None:
            raise Late(f"{lock.name!r} was not to be had for {self.now() - began:.3f} s")
        return lease

    async def until_waiting(self, lock: Lock, count: int, within: float = PATIENCE) -> None:
        """Wait until so many wait for *lock*; Late when they do not *within* seconds."""

        async def waiting() -> bool:
            return len(await lock.waiters()) == count

        await self.until(waiting, within)

    async def best_of(self, tries: int, attempt: Callable[[str], Awaitable[None]]) -> None:
        """Repeat, at half the speed, what failed because the machine was busy.

        Each try has a lock of its own, and twice the leases and bounds of the one before. It may
        fail by Late, or by a lease that ran out because no renewal was sent in time.
        """
        for left in reversed(range(tries)):
            try:
                await attempt(f"try {tries - left}")
                return
            except (Late, LeaseLost) as error:
                taken = isinstance(error, LeaseLost) and error.reason != RAN_OUT
                if taken or not left:
                    raise
                self.store = self.store.slower(2.0)

    def punctual(self, since: float, seconds: float) -> None:
        """Late, if more than *seconds* have passed *since*, at the pace of this machine."""
        self.bounded(self.now() - since, seconds)

    def bounded(self, passed: float, seconds: float) -> None:
        """Late, if *passed* is more than *seconds*, at the pace of this machine."""
        bound = seconds * self.store.pace
        if passed > bound:
            raise Late(f"{passed:.3f} s passed, more than {bound:.3f} s")

    async def whole(self, body: Coroutine[Any, Any, T]) -> T:
        """Run a scenario, and clear away whatever it leaves."""
        try:
            return await body
        finally:
            await self.close()

    async def close(self) -> None:
        """End what the scenario has started."""
        self.closed = True
        for child in self.children:
            child.close()
        for client in self.clients:
            await client.close()
        for other in self.others:
            while not other.ended():
                await self.pause(LOOK_EVERY)
            if other.error is not None and not isinstance(other.error, ClientClosed):
                raise other.error


async def _answer(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = condition()
    return answer if isinstance(answer, bool) else await answer
