"""Waiting for a lock with progress messages; a signal ends the wait.

The main thread waits for the lock. A second thread reports the holder and the position in the
queue. When a signal asks for the end, it closes the client, which ends the wait and removes the
claim from the queue.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from leaselock import LeaselockError
from leaselock.cli.exit_codes import Interrupted
from leaselock.cli.formatting import describe, format_duration
from leaselock.cli.output import StatusLine, say
from leaselock.cli.store import wait_timeout

if TYPE_CHECKING:
    import argparse

    from leaselock import Client, Holder, Lease, Lock, Waiter
    from leaselock.cli.signals import Signals

# Seconds: to the first message; between lines in a log; between updates of a status line.
FIRST_MESSAGE = 1.0
LOG_INTERVAL = 60.0
STATUS_INTERVAL = 1.0


class InteractiveWait:
    """One wait for one lock."""

    def __init__(
        self, client: Client, lock: Lock, options: argparse.Namespace, signals: Signals
    ) -> None:
        self.client = client
        self.lock = lock
        self.options = options
        self.signals = signals
        self.finished = False
        self.status = StatusLine(options)
        self.last_holder: Holder | None = None
        self.began = time.monotonic()

    def acquire(self) -> Lease | None:
        """Return the lease; or None, after a message that names the holder, if the lock is busy.

        Raises Interrupted if a signal came first; then nothing is held.
        """
        reporter = threading.Thread(target=self._report_progress, name="leaselock-progress")
        reporter.daemon = True
        reporter.start()
        lease = None
        try:
            lease = self.lock.acquire(wait_timeout(self.options))
        except LeaselockError:
            if self.signals.ending is None:
                raise
        finally:
            self._stop(reporter)
        if self.signals.ending is not None:
            raise Interrupted(self.signals.ending)
        self._report_result(lease)
        return lease

    def _stop(self, reporter: threading.Thread) -> None:
        self.finished = True
        self.signals.wake()
        reporter.join()
        self.status.clear()

    def _report_result(self, lease: Lease | None) -> None:
        if lease is None and not self.options.quiet:
            say(self._busy_message())
        elif self.last_holder is not None and self.options.verbose:
            waited = format_duration(time.monotonic() - self.began)
            holder = describe(self.last_holder)
            say(f"waited {waited} for {self.lock.name!r}; held before by {holder}")

    def _busy_message(self) -> str:
        timeout = wait_timeout(self.options)
        waited = f" after {format_duration(timeout)}" if timeout else ""
        holder = self.lock.holder()
        if holder is None:
            return f"{self.lock.name!r} was busy{waited}; it has become free just now"
        held = f"held by {describe(holder)}, in {self.client.url}"
        return f"{self.lock.name!r} is busy{waited}: {held}"

    def _report_progress(self) -> None:
        due = self.began + (0.0 if self.options.verbose else FIRST_MESSAGE)
        while not self.finished:
            self.signals.wait(due - time.monotonic())
            if self.signals.ending is not None:
                self.client.close()
                return
            if time.monotonic() >= due:
                self._inspect()
                due = self._next_report()

    def _next_report(self) -> float:
        waited = time.monotonic() - self.began
        if waited < FIRST_MESSAGE:
            return self.began + FIRST_MESSAGE
        return time.monotonic() + (STATUS_INTERVAL if self.status.supported else LOG_INTERVAL)

    def _inspect(self) -> None:
        try:
            holder, waiters = self.lock.holder(), self.lock.waiters()
        except LeaselockError as error:
            # The wait itself continues, or ends with the same error.
            self._show(f"waiting for {self.lock.name!r}, but cannot read its holder: {error}")
            return
        self.last_holder = holder or self.last_holder
        if not self.finished:
            self._show(self._waiting_message(holder, waiters))

    def _waiting_message(self, holder: Holder | None, waiters: list[Waiter]) -> str:
        this_process = os.uname().nodename, os.getpid()
        places = [i for i, w in enumerate(waiters, 1) if (w.host, w.pid) == this_process]
        place = f", place {places[0]} of {len(waiters)}" if places else ""
        by = f"; held by {describe(holder)}" if holder is not None else ""
        waited = format_duration(time.monotonic() - self.began)
        return f"waiting for {self.lock.name!r} for {waited}{place}{by}"

    def _show(self, text: str) -> None:
        if self.options.quiet or time.monotonic() < self.began + FIRST_MESSAGE:
            return
        if self.status.supported:
            self.status.show(text)
        else:
            say(text)
