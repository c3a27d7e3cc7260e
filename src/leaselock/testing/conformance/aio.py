"""The world of asyncio: one loop, holders are tasks, and the public classes as they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import leaselock
from leaselock.testing.conformance.world import Body, Other, World

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from leaselock.testing.conformance.face import Client

T = TypeVar("T")


class InAsyncio(World):
    """Holders are tasks."""

    driver = "asyncio"
    crowd = 1000

    def connect(self, url: str, **terms: Any) -> Client:
        """A client of any store."""
        return leaselock.AsyncClient(url, **terms)

    def spawn(self, body: Body[T], *arguments: Any, title: str | None = None) -> Other[T]:
        """Start a task."""
        other: InTask[T] = InTask(self, body(*arguments), title)
        self.others.append(other)
        return other

    async def pause(self, seconds: float) -> None:
        """Let other tasks run."""
        await asyncio.sleep(seconds)

    def title(self) -> str:
        """The name of this task."""
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it in a loop of its own."""
        return asyncio.run(coroutine)


class InTask(Other[T]):
    """Another task."""

    def __init__(self, world: World, body: Coroutine[Any, Any, T], title: str | None) -> None:
        super().__init__(world, body)
        self.task = asyncio.create_task(self.run(), name=title or "another")
        # A task that is cancelled before its first step never begins its body.
        self.task.add_done_callback(lambda _: body.close())

    def ended(self) -> bool:
        """Whether the task is done."""
        return self.task.done()

    def cancel(self) -> None:
        """Cancel the task."""
        self.task.cancel()
