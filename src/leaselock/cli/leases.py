"""acquire, release, extend, check: a lease that outlives the command, known by its token."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from leaselock.cli import codes
from leaselock.cli.codes import Usage
from leaselock.cli.patience import Patience
from leaselock.cli.show import SCHEMA
from leaselock.cli.signals import Signals
from leaselock.cli.store import client_of
from leaselock.cli.voice import described, say

if TYPE_CHECKING:
    import argparse

    from leaselock import Client, Lease


def do_acquire(options: argparse.Namespace) -> int:
    """Take a lease, print its token, and leave it."""
    if sys.stdout is None:
        raise Usage("the token would be lost: acquire prints it, and its output is closed")
    with Signals() as signals, client_of(options) as client:
        lock = client.lock(options.name, lease=options.ttl, renew=False, label=options.reason)
        lease = Patience(client, lock, options, signals).acquire()
        if lease is None:
            return int(options.conflict)
        signals.check()
        lease.detach()
        _hand_out(client, lease, options)
    return 0


def _hand_out(client: Client, lease: Lease, options: argparse.Namespace) -> None:
    document = {"schema": SCHEMA, "name": lease.name, "token": lease.token, "ttl": options.ttl}
    try:
        print(json.dumps(document) if options.json else lease.token)
        sys.stdout.flush()
    except OSError:
        # A lease whose token nobody knows would only be in the way.
        client.adopt(lease.name, lease.token).release()
        raise


def do_release(options: argparse.Namespace) -> int:
    """Give a lease back."""
    with client_of(options) as client:
        client.adopt(options.name, options.token).release()
    return 0


def do_extend(options: argparse.Namespace) -> int:
    """Make a lease end no sooner than so long from now."""
    with client_of(options) as client:
        client.adopt(options.name, options.token).extend(options.ttl)
    return 0


def do_check(options: argparse.Namespace) -> int:
    """Exit 0 if the token holds the lock, detached or not."""
    with client_of(options) as client:
        holder = client.lock(options.name).holder()
    if holder is not None and holder.token == options.token:
        return 0
    if not options.quiet:
        by = "free" if holder is None else f"held by {described(holder)}, token {holder.token}"
        say(f"{options.name!r} is {by}")
    return codes.NOT_HELD
