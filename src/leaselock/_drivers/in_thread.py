"""A blocking node under asyncio: one thread calls it, in the order of the requests.

The order matters: a request that was cancelled is carried out before the release that follows it. A
node for which it does not matter says in how many threads it may be called.
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
        self.threads: list[threading.Thread] = []
        # Those whose requests the threads have not answered yet, even if nobody waits for them.
        self.unanswered: set[asyncio.Future[object]] = set()

    async def call(self, request: object, until: float) -> object:
        """The node's reply."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        if len(self.threads) <= min(len(self.unanswered), self.node.concurrency - 1):
            thread = threading.Thread(
                target=self._work, args=(self.jobs,), name="leaselock-node", daemon=True
            )
            thread.start()
            self.threads.append(thread)
        self.unanswered.add(future)
        self.jobs.put((request, until, loop, future))
        return await future

    def _work(self, jobs: SimpleQueue[Job | None]) -> None:
        while (job := jobs.get()) is not None:
            request, until, loop, future = job
            try:
                answer: object = self.node.call(request, until)
                deliver: Callable[..., None] = self._answer
            except BaseException as error:
                answer, deliver = error, self._fail
            try:
                loop.call_soon_threadsafe(deliver, future, answer)
            except RuntimeError:
                # The loop is closed: no task waits for the answer any more.
                continue

    def interrupt(self) -> None:
        """End the calls that have no deadline."""
        self.node.interrupt()

    def _answer(self, future: asyncio.Future[object], answer: object) -> None:
        self.unanswered.discard(future)
        if not future.done():
            future.set_result(answer)

    def _fail(self, future: asyncio.Future[object], error: Any) -> None:
        self.unanswered.discard(future)
        if not future.done():
            future.set_exception(error)

    async def finish(self) -> None:
        """Return when all requests are done, and the threads have ended."""
        for thread in self._end():
            await asyncio.to_thread(thread.join)

    def retire(self) -> None:
        """The same after the loop was closed."""
        for thread in self._end():
            thread.join()

    def _end(self) -> list[threading.Thread]:
        threads = self.threads
        for _ in threads:
            self.jobs.put(None)
        self._reset()
        return threads

    def _reset(self) -> None:
        self.jobs = SimpleQueue()
        self.threads = []
        self.unanswered = set()

    def close(self) -> None:
        """Close the node; its threads have ended."""
        self.node.close()

    def after_fork(self) -> None:
        """A forked child does not have the threads."""
        self._reset()
        self.node.after_fork()
