"""The background threads of one driver. A thread that has no work waits a moment for more.

The core starts short background operations often; a new thread for each would be slow.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.contract.effects import Operation

# From Python 3.12 on.
ENDING = "the interpreter is ending, and starts no more threads: acquire locks before that"
# For how many seconds an idle thread waits for work.
IDLE = 1.0

Inbox = SimpleQueue["tuple[Operation[None], str] | None"]


class ThreadPool:
    """The background threads of one driver."""

    def __init__(self, run: Callable[[Operation[None]], object]) -> None:
        self.run = run
        self.threads: set[threading.Thread] = set()
        # The inboxes of idle threads. A thread that takes one out must put something in.
        self.idle: list[Inbox] = []
        self.closing = False
        self.starting = threading.Lock()

    def start(self, operation: Operation[None], name: str) -> None:
        """Run *operation* in a background thread; it is closed if no thread can be started."""
        try:
            inbox = self.idle.pop()
        except IndexError:
            self._start_thread(operation, name)
        else:
            inbox.put((operation, name))

    def _start_thread(self, operation: Operation[None], name: str) -> None:
        thread = threading.Thread(
            target=self._work, args=(operation,), name=f"leaselock-{name}", daemon=True
        )
        try:
            # `close` must see the thread once it runs, and be able to join it.
            with self.starting:
                thread.start()
                self.threads.add(thread)
        except BaseException as error:
            operation.close()
            if isinstance(error, RuntimeError) and not threading.main_thread().is_alive():
                raise NotApplied(ENDING, "refused") from error
            raise

    def _work(self, operation: Operation[None]) -> None:
        thread = threading.current_thread()
        with self.starting:
            pass  # wait until it is in `threads`
        try:
            self.run(operation)
            while work := self._more():
                thread.name = f"leaselock-{work[1]}"
                self.run(work[0])
        finally:
            self.threads.discard(thread)

    def _more(self) -> tuple[Operation[None], str] | None:
        inbox: Inbox = SimpleQueue()
        self.idle.append(inbox)
        try:
            return inbox.get(timeout=0.0 if self.closing else IDLE)
        except Empty:
            pass
        try:
            self.idle.remove(inbox)
        except ValueError:
            # Another thread has just taken it out, and puts something in.
            return inbox.get()
        return None

    def close(self, timeout: float) -> None:
        """Dismiss the idle threads, and wait for each of the others, at most *timeout* seconds."""
        self.closing = True
        while self.idle:
            with suppress(IndexError):
                self.idle.pop().put(None)
        with self.starting:
            threads = list(self.threads)
        for thread in threads:
            if thread.ident != threading.get_ident():
                thread.join(timeout)
        self.closing = False
