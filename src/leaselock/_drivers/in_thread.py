"""A blocking node under asyncio: one thread calls it, in the order of the requests.

The order matters: a request that was cancelled is carried out before the release that follows it.
Requests that the node calls urgent come first: those that keep or end a hold, or confirm a grant.
Otherwise they would wait behind a request of each of a thousand waiters, for longer than a grant or
a lease lasts. A node for which the order does not matter says in how many threads it may be called.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.contract.lifecycle import BlockingNode

Loop = asyncio.AbstractEventLoop
Job = tuple[object, float, Loop, "asyncio.Future[object]"]


class Jobs:
    """The requests that the threads carry out: the urgent ones, then the others."""

    def __init__(self, node: BlockingNode) -> None:
        self.node = node
        self.mutex = threading.Lock()
        self.urgent: deque[Job] = deque()
        self.ordinary: deque[Job] = deque()
        self.urgency = 0
        # True for each job, which is in its deque before; None for each thread at the end.
        self.ready: SimpleQueue[bool | None] = SimpleQueue()

    def put(self, job: Job) -> None:
        """Add a job."""
        with self.mutex:
            (self.urgent if self.node.is_urgent(job[0]) else self.ordinary).append(job)
        self.ready.put(True)

    def end(self, threads: int) -> None:
        """Let `get` return None to each thread after the jobs that are here."""
        for _ in range(threads):
            self.ready.put(None)

    def get(self) -> Job | None:
        """Wait for a job."""
        if self.ready.get() is None:
            return None
        with self.mutex:
            if self.urgency != self.node.urgency:
                self.urgency = self.node.urgency
                jobs, self.ordinary = self.ordinary, deque()
                for job in jobs:
                    urgent = self.node.is_urgent(job[0])
                    (self.urgent if urgent else self.ordinary).append(job)
            return (self.urgent or self.ordinary).popleft()


class InThread:
    """A blocking node, to be awaited."""

    def __init__(self, node: BlockingNode) -> None:
        self.node = node
        self.jobs = Jobs(node)
        self.threads: list[threading.Thread] = []
        # Those whose requests the threads have not answered yet, even if no caller waits for them.
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

    def _work(self, jobs: Jobs) -> None:
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
        self.jobs.end(len(threads))
        self.after_fork()
        return threads

    def after_fork(self) -> None:
        """Begin without threads: a forked child does not have them."""
        self.jobs = Jobs(self.node)
        self.threads = []
        self.unanswered = set()
