"""A blocking node under asyncio: one thread calls it, in the order of the requests.

The order matters: a request that was cancelled is carried out before the release that follows it.
"""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.lifecycle import Node

Loop = asyncio.AbstractEventLoop
Job = tuple[object, float, Loop, "asyncio.Future[object]"]


class InThread:
    """A blocking node, to be awaited."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.thread: threading.Thread | None = None

    async def call(self, request: object, until: float) -> object:
        """The node's reply."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        if self.thread is None:
            self.thread = threading.Thread(
                target=self._work, args=(self.jobs,), name="leaselock-node", daemon=True
            )
            self.thread.start()
        self.jobs.put((request, until, loop, future))
        return await future

    def _work(self, jobs: SimpleQueue[Job | None]) -> None:
        while (job := jobs.get()) is not None:
            request, until, loop, future = job
            try:
                answer: object = self.node.call(request, until)
                deliver: Callable[..., None] = _answer
            except BaseException as error:
                answer, deliver = error, _fail
            try:
                loop.call_soon_threadsafe(deliver, future, answer)
            except RuntimeError:
                # The loop is closed: no task waits for the answer any more.
                continue

    def interrupt(self) -> None:
        """End a call that has no deadline."""
        self.node.interrupt()

    async def finish(self) -> None:
        """Return when all requests are done, and the thread has ended."""
        thread = self._end()
        if thread is not None:
            await asyncio.to_thread(thread.join)

    def retire(self) -> None:
        """The same after the loop was closed."""
        thread = self._end()
        if thread is not None:
            thread.join()

    def _end(self) -> threading.Thread | None:
        self.jobs.put(None)
        thread, self.thread = self.thread, None
        self.jobs = SimpleQueue()
        return thread

    def close(self) -> None:
        """Close the node; its thread has ended."""
        self.node.close()

    def after_fork(self) -> None:
        """A forked child does not have the thread."""
        self.jobs = SimpleQueue()
        self.thread = None
        self.node.after_fork()


def _answer(future: asyncio.Future[object], answer: object) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[object], error: Any) -> None:
    if not future.done():
        future.set_exception(error)
