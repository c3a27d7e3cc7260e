"""wait: until a lock is free, or held.

To know that a lock is free is to have it: the wait for that takes a place in the queue, holds
the lock for a moment when its turn comes, and gives it back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leaselock.cli import codes
from leaselock.cli.patience import Patience
from leaselock.cli.signals import Signals
from leaselock.cli.store import client_of, timeout_of
from leaselock.cli.voice import say
from leaselock.cli.words import length

if TYPE_CHECKING:
    import argparse

    from leaselock import Lock

FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.25


def do_wait(options: argparse.Namespace) -> int:
    """Wait until the lock is as wanted."""
    with Signals() as signals, client_of(options) as client:
        lock = client.lock(options.name, label="leaselock wait")
        if options.until == "held":
            return _until_held(lock, options, signals)
        lease = Patience(client, lock, options, signals).acquire()
        if lease is None:
            return codes.BUSY
        lease.release()
    return 0


def _until_held(lock: Lock, options: argparse.Namespace, signals: Signals) -> int:
    # Nobody is told when a lock is taken, so this one looks again and again.
    timeout = timeout_of(options)
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    pause = FIRST_PAUSE
    while not lock.locked():
        if time.monotonic() >= deadline:
            if not options.quiet:
                say(f"{lock.name!r} is free{f' after {length(timeout)}' if timeout else ''}")
            return codes.BUSY
        signals.wait(min(pause, deadline - time.monotonic()))
        signals.check()
        pause = min(LONGEST_PAUSE, pause * 1.5)
    return 0
