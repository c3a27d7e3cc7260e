"""The world of asyncio: one event loop, peers are tasks, clients are `leaselock.AsyncClient`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import leaselock
from leaselock.testing.conformance.world import Body, Peer, World

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from leaselock.core.client_core import ClientCore
    from leaselock.testing.conformance.api_types import Client

T = TypeVar("T")


class AsyncioWorld(World):
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

    async def pause(self, seconds: float) -> None:
        """Let other tasks run."""
        await asyncio.sleep(seconds)

    def core_of(self, client: Any) -> ClientCore:
        """Return the core of a client."""
        core: ClientCore = client._core
        return core

    def current_name(self) -> str:
        """Return the name of this task."""
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it in a loop of its own."""
        return asyncio.run(coroutine)


class TaskPeer(Peer[T]):
    """A peer that is a task."""

    def __init__(self, world: World, body: Coroutine[Any, Any, T], title: str | None) -> None:
        super().__init__(world, body)
        self.task = asyncio.create_task(self.run(), name=title or "another")
        # A task that is cancelled before its first step never starts its body.
        self.task.add_done_callback(lambda _: body.close())

    def ended(self) -> bool:
        """Return whether the task is done."""
        return self.task.done()

    def cancel(self) -> None:
        """Cancel the task."""
        self.task.cancel()
