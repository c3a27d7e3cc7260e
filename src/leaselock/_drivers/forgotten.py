"""Clients that were never closed and that nothing refers to any more are closed in the background.

`close_later` is called by a finalizer, which may run in any thread in the middle of any code: also
while that thread has the lock of another object, such as a client or the module threading. So it
takes no lock that could be held, and starts the thread without the module threading.
"""

from __future__ import annotations

import _thread
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds to wait, at the end of the interpreter, for what is being closed.
EXIT_TIMEOUT = 5.0


class Closer:
    """One thread that closes what is forgotten, and ends when there is nothing left to close."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, in a forked child: the thread and what it was to close are the parent's."""
        self.waiting: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.running = threading.Lock()

    def close_later(self, close: Callable[[], object]) -> None:
        """Have the thread call *close*."""
        self.waiting.put(close)
        if self.running.acquire(blocking=False):
            try:
                _thread.start_new_thread(self._start, ())
            except BaseException:
                self.running.release()
                raise

    def _start(self) -> None:
        """Start the thread, from one that the module threading does not know: an unknown thread
        that joins another one would stay in its list of threads for ever.
        """
        try:
            threading.Thread(target=self._work, name="leaselock-closer", daemon=True).start()
        except RuntimeError:
            self._work()  # there can be no more threads

    def _work(self) -> None:
        while True:
            while not self.waiting.empty():
                close = self.waiting.get()
                try:
                    close()
                except Exception as error:
                    report(error)
                del close
            self.running.release()
            # What was put there just before the release has found the thread running.
            if self.waiting.empty() or not self.running.acquire(blocking=False):
                return

    def finish(self) -> None:
        """Wait for the thread, at the end of the interpreter."""
        if self.running.acquire(timeout=EXIT_TIMEOUT):
            self.running.release()


def report(error: BaseException) -> None:
    """Report an error like the uncaught exception of a thread."""
    thread = threading.current_thread()
    hook = threading.ExceptHookArgs((type(error), error, error.__traceback__, thread))
    threading.excepthook(hook)


CLOSER = Closer()
