"""acquire, release, extend, check: a lease that outlives the command, known by its token."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.cli import codes
from holdfast.cli.patience import Patience
from holdfast.cli.store import client_of

if TYPE_CHECKING:
    import argparse


def do_acquire(options: argparse.Namespace) -> int:
    """Take a lease, print its token, and leave it."""
    with client_of(options) as client:
        lock = client.lock(options.name, lease=options.ttl, renew=False, label=options.reason)
        lease = Patience(lock, options).acquire()
        if lease is None:
            return int(options.conflict)
        lease.detach()
        print(lease.token)
    return 0


def do_release(options: argparse.Namespace) -> int:
    """Give a lease back."""
    with client_of(options) as client:
        client.adopt(options.name, options.token).release()
    return 0


def do_extend(options: argparse.Namespace) -> int:
    """Make a lease longer."""
    with client_of(options) as client:
        client.adopt(options.name, options.token).extend(options.ttl)
    return 0


def do_check(options: argparse.Namespace) -> int:
    """Exit 0 if the token holds the lock, detached or not."""
    with client_of(options) as client:
        holder = client.lock(options.name).holder()
    if holder is not None and holder.token == options.token:
        return 0
    now = "nobody" if holder is None else f"{holder}, token {holder.token}"
    if not options.quiet:
        print(f"holdfast: {options.name!r} is held by {now}", file=sys.stderr)
    return codes.NOT_HELD
