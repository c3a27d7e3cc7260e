"""The harness of asyncio: one event loop, peers are tasks, clients are `leaselock.AsyncClient`."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, TypeVar

import leaselock
from testkit.conformance.harness import BEGINNINGS, Body, Harness, Moment, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from testkit.conformance.api_types import Client

T = TypeVar("T")


class AsyncioHarness(Harness):
    """Peers are tasks."""

    driver = "asyncio"
    many = 1000

    def connect(self, url: str, **options: Any) -> Client:
        """Return a client of any store."""
        return leaselock.AsyncClient(url, **options)

    def spawn(self, body: Body[T], *arguments: Any, title: str | None = None) -> Peer[T]:
        """Start a task."""
        other: TaskPeer[T] = TaskPeer(self, body(*arguments), title)
        self.peers.append(other)
        return other

    async def interrupt(
        self,
        client: Client,
        operation: Callable[[], Coroutine[Any, Any, object]],
        at: int,
        moment: Moment,
    ) -> BaseException | None:
        """Cancel this task at the *at*-th suspension of an operation."""
        task = asyncio.current_task()
        assert task is not None
        try:
            await Interrupted(task, operation(), at, moment)
        except asyncio.CancelledError as error:
            while task.cancelling():
                task.uncancel()
            return error
        return None

    async def pause(self, seconds: float) -> None:
        """Let other tasks run."""
        await asyncio.sleep(seconds)

    def current_name(self) -> str:
        """Return the name of this task."""
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it in a loop of its own; fail if an exception of a future was never retrieved."""
        unretrieved: list[str] = []

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if "never retrieved" in context["message"]:
                unretrieved.append(f"{context['message']}: {context.get('future')!r}")
            loop.default_exception_handler(context)

        async def main() -> T:
            asyncio.get_running_loop().set_exception_handler(handle)
            return await coroutine

        result = asyncio.run(main())
        gc.collect()
        assert not unretrieved, unretrieved
        return result


class Interrupted:
    """A coroutine whose task is cancelled at one of its suspensions."""

    def __init__(
        self,
        task: asyncio.Task[Any],
        operation: Coroutine[Any, Any, object],
        at: int,
        moment: Moment,
    ) -> None:
        self.task = task
        self.operation = operation
        self.left = at
        self.moment = moment

    def __await__(self) -> Generator[Any, Any, object]:
        step: Callable[[Any], Any] = self.operation.send
        value: object = None
        while True:
            try:
                awaited = step(value)
            except StopIteration as done:
                return done.value
            self.left -= 1
            if self.left in BEGINNINGS[self.moment]:
                self.task.cancel()  # what it awaits is cancelled when this suspends
            try:
                step, value = self.operation.send, (yield awaited)
                if self.left == 0 and self.moment == "after":
                    # As the loop does it in a task that was cancelled when its result was there.
                    raise asyncio.CancelledError
            except BaseException as error:
                step, value = self.operation.throw, error


class TaskPeer(Peer[T]):
    """A peer that is a task."""

    def __init__(self, harness: Harness, body: Coroutine[Any, Any, T], title: str | None) -> None:
        super().__init__(harness, body)
        self.task = asyncio.create_task(self.run(), name=title or "another")
        # A task that is cancelled before its first step never starts its body.
        self.task.add_done_callback(lambda _: body.close())

    def ended(self) -> bool:
        """Return whether the task is done."""
        return self.task.done()

    def cancel(self) -> None:
        """Cancel the task."""
        self.task.cancel()
