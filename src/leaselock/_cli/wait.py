"""wait: wait until a lock is free or held."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.answer import done
from leaselock._cli.child import check_nesting
from leaselock._cli.exit_codes import Negative
from leaselock._cli.formatting import format_duration
from leaselock._cli.interactive import InteractiveWait
from leaselock._cli.signals import Signals
from leaselock._cli.store import open_client, outage_settings
from leaselock._cli.watching import wait_until_held

if TYPE_CHECKING:
    from leaselock import Client, Lock
    from leaselock._cli.options import LockWaitOptions


def do_wait(options: LockWaitOptions) -> int:
    """Wait until the lock is free or held.

    To find out that a lock is free, the command queues for it, acquires it and releases it.
    """
    with Signals() as signals, open_client(options) as client:
        lock = client.lock(options.name, label="leaselock wait", **outage_settings(options))
        if options.until == "held":
            _wait_until_held(client, lock, options, signals)
        else:
            check_nesting(lock.name, client.url, options.timeout)
            InteractiveWait(client, lock, options, signals).acquire().release()
    document = {"name": options.name, "state": options.until}
    return done(options, document, f"{options.name!r} is {options.until}")


def _wait_until_held(
    client: Client, lock: Lock, options: LockWaitOptions, signals: Signals
) -> None:
    timeout = options.timeout
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    if not wait_until_held(client, lock, signals, deadline):
        waited = f" after {format_duration(timeout)}" if timeout else ""
        text = f"{lock.name!r} is free{waited}"
        raise Negative(text, exit_codes.BUSY, "free", {"name": lock.name, "holder": None})
