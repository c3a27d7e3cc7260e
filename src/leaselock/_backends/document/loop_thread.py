"""A bridge to client libraries that are asyncio only."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._core.contract.lifecycle import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

R = TypeVar("R")
# Seconds. A future cannot be waited for longer than some years.
LONGEST_WAIT = 3600.0
# How often, and for how many seconds each time, `close` waits for the end of cancelled tasks.
ROUNDS, ROUND = 50, 0.1
# The loops of parents of this process: closing one would act on descriptors that both have.
_inherited: list[asyncio.AbstractEventLoop] = []


class LoopThread(Lifecycle):
    """An event loop in a thread of its own, which begins with the first call."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._reset()

    def _reset(self) -> None:
        self._mutex = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._started: set[Future[object]] = set()

    def run(self, operation: Coroutine[Any, Any, R], until: float) -> R:
        """Run a coroutine in the loop, from any other thread. TimeoutError at *until*: then it is
        cancelled, and whether it has taken effect is not known.
        """
        future = asyncio.run_coroutine_threadsafe(operation, self._running())
        try:
            return future.result(min(max(0.0, until - self.now()), LONGEST_WAIT))
        except BaseException:
            future.cancel()
            raise

    def start(self, operation: Coroutine[Any, Any, object]) -> Callable[[], object]:
        """Start a coroutine in the loop; return the function that cancels it."""
        future = asyncio.run_coroutine_threadsafe(operation, self._running())
        # A loop has only weak references to its tasks.
        self._started.add(future)
        future.add_done_callback(self._started.discard)
        return future.cancel

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._mutex:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                name = "leaselock event loop"
                self._thread = threading.Thread(target=_serve, args=(loop,), name=name, daemon=True)
                self._thread.start()
                self._loop = loop
            return self._loop

    def close(self) -> None:
        """Cancel all that runs in the loop, and end the thread; be ready to be used again."""
        with self._mutex:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def after_fork(self) -> None:
        """Forget the loop of the parent, whose thread this process does not have."""
        if self._loop is not None:
            _inherited.append(self._loop)
        self._reset()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        # Again and again: `asyncio.wait_for` of Python 3.11 loses a cancellation that comes with
        # its result.
        for _ in range(ROUNDS):
            if not (tasks := asyncio.all_tasks(loop)):
                break
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=ROUND))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
