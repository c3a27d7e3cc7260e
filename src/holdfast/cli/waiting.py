"""wait: until a lock is free, or held."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.cli import codes
from holdfast.cli.patience import Patience
from holdfast.cli.store import client_of, timeout_of

if TYPE_CHECKING:
    import argparse

    from holdfast import Lock

FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.25


def do_wait(options: argparse.Namespace) -> int:
    """Wait until the lock is as wanted."""
    with client_of(options) as client:
        lock = client.lock(options.name, label="holdfast wait")
        if options.until == "held":
            return _until_held(lock, timeout_of(options))
        lease = Patience(lock, options).acquire()
        if lease is None:
            return codes.BUSY
        lease.release()
        return 0


def _until_held(lock: Lock, timeout: float | None) -> int:
    # Nobody is told when a lock is taken, so this one looks again and again.
    deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
    pause = FIRST_PAUSE
    while not lock.locked():
        if time.monotonic() >= deadline:
            return codes.BUSY
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(LONGEST_PAUSE, pause * 1.5)
    return 0
