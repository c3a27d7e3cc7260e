"""Waiting for a lock: somebody looks on, and a signal ends it.

The main thread waits. Another one watches: it tells who has the lock and whose turn it is, and
when a signal says so it closes the client, which ends the wait and leaves nothing in the queue.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from leaselock import LeaselockError
from leaselock.cli.codes import Interrupted
from leaselock.cli.store import timeout_of
from leaselock.cli.voice import Line, described, say
from leaselock.cli.words import length

if TYPE_CHECKING:
    import argparse

    from leaselock import Client, Holder, Lease, Lock
    from leaselock.cli.signals import Signals

FIRST_LINE = 1.0
NEXT_LINE = 60.0
REWRITTEN = 1.0


class Patience:
    """One wait for one lock."""

    def __init__(
        self, client: Client, lock: Lock, options: argparse.Namespace, signals: Signals
    ) -> None:
        self.client = client
        self.lock = lock
        self.options = options
        self.signals = signals
        self.over = False
        self.line = Line(options)
        self.seen: Holder | None = None
        self.began = time.monotonic()

    def acquire(self) -> Lease | None:
        """The lease; None, and a message that names the holder, when the lock is busy.

        Raises Interrupted when a signal came first; then nothing is held.
        """
        watcher = threading.Thread(target=self._watch, name="leaselock-watcher", daemon=True)
        watcher.start()
        lease = None
        try:
            lease = self.lock.acquire(timeout_of(self.options))
        except LeaselockError:
            if self.signals.ending is None:
                raise
        finally:
            self._end(watcher)
        if self.signals.ending is not None:
            raise Interrupted(self.signals.ending)
        self._report(lease)
        return lease

    def _end(self, watcher: threading.Thread) -> None:
        self.over = True
        self.signals.wake()
        watcher.join()
        self.line.clear()

    def _report(self, lease: Lease | None) -> None:
        if lease is None and not self.options.quiet:
            say(self._busy())
        elif self.seen is not None and self.options.verbose:
            waited = length(time.monotonic() - self.began)
            say(f"waited {waited} for {self.lock.name!r}; held before by {described(self.seen)}")

    def _busy(self) -> str:
        timeout = timeout_of(self.options)
        waited = f" after {length(timeout)}" if timeout else ""
        holder = self.lock.holder()
        if holder is None:
            return f"{self.lock.name!r} was busy{waited}; it has become free just now"
        return f"{self.lock.name!r} is busy{waited}: held by {described(holder)}"

    def _watch(self) -> None:
        due = self.began + (0.0 if self.options.verbose else FIRST_LINE)
        while not self.over:
            self.signals.wait(due - time.monotonic())
            if self.signals.ending is not None:
                self.client.close()
                return
            if time.monotonic() >= due:
                self._look()
                due = self._next()

    def _next(self) -> float:
        waited = time.monotonic() - self.began
        if waited < FIRST_LINE:
            return self.began + FIRST_LINE
        return time.monotonic() + (REWRITTEN if self.line.possible else NEXT_LINE)

    def _look(self) -> None:
        try:
            holder, waiters = self.lock.holder(), self.lock.waiters()
        except LeaselockError as error:
            # The wait itself goes on, or ends with the same error.
            self._show(f"waiting for {self.lock.name!r}, but cannot see who holds it: {error}")
            return
        self.seen = holder or self.seen
        if not self.over:
            self._show(self._picture(holder, waiters))

    def _picture(self, holder: Holder | None, waiters: list[Holder]) -> str:
        us = os.uname().nodename, os.getpid()
        places = [i for i, waiter in enumerate(waiters, 1) if (waiter.host, waiter.pid) == us]
        place = f", place {places[0]} of {len(waiters)}" if places else ""
        by = f"; held by {described(holder)}" if holder is not None else ""
        waited = length(time.monotonic() - self.began)
        return f"waiting for {self.lock.name!r} for {waited}{place}{by}"

    def _show(self, text: str) -> None:
        if self.options.quiet or time.monotonic() < self.began + FIRST_LINE:
            return
        if self.line.possible:
            self.line.show(text)
        else:
            say(text)
