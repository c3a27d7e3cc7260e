"""The harness of threads: an awaited call blocks until its end, so no coroutine ever suspends."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

import leaselock
from leaselock._core.contract.effects import Spawn
from testkit.conformance.harness import BEGINNINGS, Body, Harness, Moment, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leaselock._core.contract.effects import Effect
    from testkit.conformance.api_types import Client

T = TypeVar("T")


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a scenario awaited something that is not part of its harness")


class ThreadHarness(Harness):
    """Peers are threads."""

    driver = "threads"
    many = 100

    def connect(self, url: str, **options: Any) -> Client:
        """Return a client of any store."""
        client: Client = awaited(leaselock.Client(url, **options))
        return client

    def spawn(self, body: Body[T], *arguments: Any, title: str | None = None) -> Peer[T]:
        """Start a thread."""
        other: ThreadPeer[T] = ThreadPeer(self, body(*arguments), title)
        self.peers.append(other)
        return other

    async def interrupt(
        self,
        client: Client,
        operation: Callable[[], Coroutine[Any, Any, object]],
        at: int,
        moment: Moment,
    ) -> BaseException | None:
        """Raise KeyboardInterrupt at the *at*-th effect of an operation."""
        assert isinstance(client, Awaited)
        driver, thread, left = client.plain._driver, threading.current_thread(), at
        perform = driver._perform

        def interrupted(effect: Effect[Any]) -> object:
            nonlocal left
            if threading.current_thread() is not thread:
                return perform(effect)
            left -= 1
            if left in BEGINNINGS[moment]:
                if isinstance(effect, Spawn):
                    effect.operation.close()  # as the pool does it when no thread can be started
                raise KeyboardInterrupt
            answer = perform(effect)
            if left == 0 and moment == "after":
                raise KeyboardInterrupt
            return answer

        vars(driver)["_perform"] = interrupted
        try:
            await operation()
        except KeyboardInterrupt as error:
            return error
        finally:
            del vars(driver)["_perform"]
        return None

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

    def __init__(self, harness: Harness, body: Coroutine[Any, Any, T], title: str | None) -> None:
        super().__init__(harness, body)
        self.thread = threading.Thread(
            target=lambda: finish(self.run()), name=title or "another", daemon=True
        )
        self.thread.start()

    def ended(self) -> bool:
        """Return whether the thread has ended."""
        return not self.thread.is_alive()


class Awaited:
    """A synchronous object whose methods are awaited, like those of its class for asyncio."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.plain, name)
        if not inspect.ismethod(value):
            return awaited(value)
        counterpart = getattr(getattr(leaselock, f"Async{type(self.plain).__name__}"), name)

        def call(*arguments: Any, **options: Any) -> Any:
            return awaited(value(*map(self.blocking, arguments), **options))

        async def call_later(*arguments: Any, **options: Any) -> Any:
            return call(*arguments, **options)

        return call_later if inspect.iscoroutinefunction(counterpart) else call

    def blocking(self, argument: Any) -> Any:
        """An argument for threads: locks, and functions that take or are called under one."""
        if isinstance(argument, Awaited):
            return argument.plain
        if isinstance(argument, list | tuple):
            return [self.blocking(member) for member in argument]
        if not callable(argument):
            return argument

        def function(*given: Any, **named: Any) -> Any:
            done = argument(
                *(self if one is self.plain else awaited(one) for one in given), **named
            )
            return finish(done) if inspect.iscoroutine(done) else done

        return function

    def __call__(self, function: Any) -> Any:
        decorated = self.plain(self.blocking(function))

        async def call(*arguments: Any, **options: Any) -> Any:
            return decorated(*arguments, **options)

        return call

    async def __aenter__(self) -> Any:
        return awaited(self.plain.__enter__())

    async def __aexit__(self, *exception: object) -> None:
        self.plain.__exit__(*exception)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        for value in self.plain:
            return value
        raise StopAsyncIteration


def awaited(value: Any) -> Any:
    """The object that scenarios get for one of the interface for threads; others as they are."""
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return [awaited(member) for member in value]
    return Awaited(value) if type(value).__module__ == "leaselock._api.threads" else value
