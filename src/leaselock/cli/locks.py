"""acquire, release, extend, check, break, wait: the commands that act on one lock.

A lease taken by ``acquire`` outlives the command; later commands name it by its token.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from leaselock.cli import exit_codes
from leaselock.cli.exit_codes import Usage
from leaselock.cli.formatting import describe, format_duration
from leaselock.cli.interactive import InteractiveWait
from leaselock.cli.output import prompt, say
from leaselock.cli.show import SCHEMA
from leaselock.cli.signals import Signals
from leaselock.cli.store import open_client, wait_timeout

if TYPE_CHECKING:
    import argparse

    from leaselock import Client, Holder, Lease, Lock

# Seconds between two reads of a lock, at first and at most.
FIRST_INTERVAL = 0.01
LONGEST_INTERVAL = 0.25


def do_acquire(options: argparse.Namespace) -> int:
    """Acquire a lease, print its token, and detach it."""
    if sys.stdout is None:
        raise Usage("the token would be lost: acquire prints it, and its output is closed")
    with Signals() as signals, open_client(options) as client:
        lock = client.lock(options.name, lease=options.ttl, renew=False, label=options.reason)
        lease = InteractiveWait(client, lock, options, signals).acquire()
        if lease is None:
            return int(options.conflict)
        signals.check()
        lease.detach()
        _print_token(client, lease, options)
    return 0


def _print_token(client: Client, lease: Lease, options: argparse.Namespace) -> None:
    document = {"schema": SCHEMA, "name": lease.name, "token": lease.token, "ttl": options.ttl}
    try:
        print(json.dumps(document) if options.json else lease.token)
        sys.stdout.flush()
    except OSError:
        # Without its token, the lease could only be waited out.
        client.adopt(lease.name, lease.token).release()
        raise


def do_release(options: argparse.Namespace) -> int:
    """Release a lease."""
    with open_client(options) as client:
        client.adopt(options.name, options.token).release()
    return 0


def do_extend(options: argparse.Namespace) -> int:
    """Extend a lease to at least --ttl from now."""
    with open_client(options) as client:
        client.adopt(options.name, options.token).extend(options.ttl)
    return 0


def do_check(options: argparse.Namespace) -> int:
    """Exit 0 if the token holds the lock, detached or not."""
    with open_client(options) as client:
        holder = client.lock(options.name).holder()
    if holder is not None and holder.token == options.token:
        return 0
    if not options.quiet:
        state = "free" if holder is None else f"held by {describe(holder)}, token {holder.token}"
        say(f"{options.name!r} is {state}")
    return exit_codes.NOT_HELD


def do_break(options: argparse.Namespace) -> int:
    """Break a lock, after confirmation."""
    with open_client(options) as client:
        lock = client.lock(options.name)
        _require_reason(options)
        holder = lock.holder()
        if holder is None:
            say(f"{options.name!r} is free")
            return 0
        say(f"{options.name!r} is held by {describe(holder)}, token {holder.token}")
        if not _confirmed(options):
            say("not broken")
            return exit_codes.UNMET
        return _break(client, options, holder)


def _needs_confirmation(options: argparse.Namespace) -> bool:
    return not options.yes and options.token is None


def _require_reason(options: argparse.Namespace) -> None:
    if sys.stdin is not None and sys.stdin.isatty():
        return
    if _needs_confirmation(options):
        raise Usage("stdin is not a terminal: give --yes or --token T, and --reason TEXT")
    if not options.reason:
        raise Usage("--reason TEXT is required when stdin is not a terminal")


def _confirmed(options: argparse.Namespace) -> bool:
    if not _needs_confirmation(options):
        return True
    name: str = options.name
    return prompt(f"type {name} to break it: ") == name


def _break(client: Client, options: argparse.Namespace, holder: Holder) -> int:
    # Break only the grant that was shown: the lock may have changed hands since.
    token = holder.token if options.token is None else options.token
    broken = client.break_lock(options.name, token=token)
    if broken is None:
        say(f"{options.name!r} has become free just now")
    elif not options.quiet:
        reason = f": {options.reason}" if options.reason else ""
        say(f"broke {options.name!r}, token {broken.token}{reason}")
    return 0


def do_wait(options: argparse.Namespace) -> int:
    """Wait until the lock is free or held.

    To find out that a lock is free, the command queues for it, acquires it and releases it.
    """
    with Signals() as signals, open_client(options) as client:
        lock = client.lock(options.name, label="leaselock wait")
        if options.until == "held":
            return _wait_until_held(lock, options, signals)
        lease = InteractiveWait(client, lock, options, signals).acquire()
        if lease is None:
            return exit_codes.BUSY
        lease.release()
    return 0


def _wait_until_held(lock: Lock, options: argparse.Namespace, signals: Signals) -> int:
    # Stores send no notification when a lock is taken, so this polls.
    timeout = wait_timeout(options)
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    interval = FIRST_INTERVAL
    while not lock.locked():
        if time.monotonic() >= deadline:
            if not options.quiet:
                waited = f" after {format_duration(timeout)}" if timeout else ""
                say(f"{lock.name!r} is free{waited}")
            return exit_codes.BUSY
        signals.wait(min(interval, deadline - time.monotonic()))
        signals.check()
        interval = min(LONGEST_INTERVAL, interval * 1.5)
    return 0
