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

from leaselock import AcquireTimeout, LeaselockError
from leaselock._cli import exit_codes
from leaselock._cli.child import reap_orphans
from leaselock._cli.exit_codes import Interrupted, Negative
from leaselock._cli.formatting import describe, format_duration, format_time, short_name, time_held
from leaselock._cli.output import StatusLine, say
from leaselock._cli.several import blocking
from leaselock.process_identity import host_name

if TYPE_CHECKING:
    from leaselock import Client, Holder, Lease, Lock, Waiter
    from leaselock._cli.options import WaitOptions
    from leaselock._cli.several import SeveralLeases, SeveralLocks, Turn
    from leaselock._cli.signals import Signals

# Seconds: to the first message; between lines in a log; between updates of a status line.
FIRST_MESSAGE = 1.0
LOG_INTERVAL = 60.0
STATUS_INTERVAL = 1.0


class InteractiveWait:
    """One wait for one lock."""

    def __init__(
        self,
        client: Client,
        lock: Lock | SeveralLocks | Turn,
        options: WaitOptions,
        signals: Signals,
    ) -> None:
        self.client = client
        self.lock = lock
        self.options = options
        self.signals = signals
        self.finished = False
        self.status = StatusLine(options)
        self.last_holder: Holder | None = None
        self.began = time.monotonic()
        self.waited = 0.0

    def acquire(self) -> Lease | SeveralLeases:
        """Return the lease.

        Raises Negative, which names the holder, if the lock stays busy; Interrupted if a signal
        came first. Then nothing is held.
        """
        reporter = threading.Thread(target=self._report_progress, name="leaselock-progress")
        reporter.daemon = True
        reporter.start()
        lease: Lease | SeveralLeases | None = None
        try:
            lease = self.lock.acquire(timeout=self.options.timeout)
        except AcquireTimeout:
            pass  # a signal that came first is reported below
        except LeaselockError:
            if self.signals.ending is None:
                raise
        finally:
            self._stop(reporter)
        self.waited = time.monotonic() - self.began
        if self.signals.ending is not None:
            raise Interrupted(self.signals.ending)
        if lease is None:
            raise self._busy()
        if self.options.verbose:
            self._report_grant(lease)
        return lease

    def _stop(self, reporter: threading.Thread) -> None:
        self.finished = True
        self.signals.wake()
        reporter.join()
        self.status.clear()

    def _report_grant(self, lease: Lease | SeveralLeases) -> None:
        waited = f"waited {format_duration(self.waited)}"
        if self.last_holder is not None:
            waited += f"; held before by {describe(self.last_holder)}"
        say(f"acquired {self.lock.name!r}, token {lease.token}; {waited}")

    def _busy(self) -> Negative:
        from leaselock.documents import holder_document

        timeout = self.options.timeout
        waited = f" after {format_duration(timeout)}" if timeout else ""
        lock = blocking(self.lock)
        holder = lock.holder()
        if holder is None:
            text = f"{lock.name!r} was busy{waited}; it has become free just now"
        elif holder.cooling_down and holder.remaining is not None:
            begins = format_time(time.time() + holder.remaining)
            since = f" at {format_time(holder.since)}" if holder.since else ""
            text = (
                f"{lock.name!r} has run already: {holder} took the turn{since}; the next one "
                f"begins at {begins}, in {format_duration(holder.remaining)}"
            )
        else:
            held = f"held by {describe(holder)}, in {self.client.url}"
            text = f"{lock.name!r} is busy{waited}: {held}"
        details: dict[str, object] = {"name": lock.name, "holder": holder_document(holder)}
        if self.options.json:
            details["waiters"] = [holder_document(waiter) for waiter in lock.waiters()]
        code = 0 if self.options.skip_ok else self.options.conflict
        return Negative(text, code, exit_codes.KINDS[exit_codes.BUSY], details)

    def _report_progress(self) -> None:
        due = self.began + (0.0 if self.options.verbose else FIRST_MESSAGE)
        while not self.finished:
            self.signals.wait(due - time.monotonic())
            reap_orphans()
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
            lock = blocking(self.lock)
            holder, waiters = lock.holder(), lock.waiters()
        except LeaselockError as error:
            # The wait itself continues, or ends with the same error, which is printed then.
            if self.status.supported:
                self._show(f"waiting, but cannot read the holder of {self.lock.name!r}: {error}")
            return
        self.last_holder = holder or self.last_holder
        if not self.finished:
            self._show(self._waiting_message(lock.name, holder, waiters))

    def _waiting_message(self, name: str, holder: Holder | None, waiters: list[Waiter]) -> str:
        this_process = host_name(), os.getpid()
        positions = [i for i, w in enumerate(waiters, 1) if (w.host, w.pid) == this_process]
        # What is longer than a terminal is cut at its end. So the holder comes first, and the name,
        # which the user has typed, and the label follow.
        position = f", position {positions[0]} of {len(waiters)}" if positions else ""
        waited = f"waiting {format_duration(time.monotonic() - self.began)}{position}"
        if holder is None:
            return f"{waited} for {name!r}"
        label = f" ({holder.label})" if holder.label else ""
        by = f"held by {short_name(holder)} {time_held(holder)}"
        return f"{waited}; {by}: {name!r}{label}"

    def _show(self, text: str) -> None:
        if self.options.quiet or time.monotonic() < self.began + FIRST_MESSAGE:
            return
        if self.status.supported:
            self.status.show(text)
        else:
            say(text)
