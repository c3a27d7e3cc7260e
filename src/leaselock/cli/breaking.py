"""break: take a lock from its holder by force."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from leaselock.cli import codes
from leaselock.cli.codes import Usage
from leaselock.cli.store import client_of
from leaselock.cli.voice import ask, described, say

if TYPE_CHECKING:
    import argparse

    from leaselock import Client, Holder


def do_break(options: argparse.Namespace) -> int:
    """Break a lock, once somebody is sure of it."""
    with client_of(options) as client:
        lock = client.lock(options.name)
        _need_a_reason(options)
        holder = lock.holder()
        if holder is None:
            say(f"{options.name!r} is free")
            return 0
        say(f"{options.name!r} is held by {described(holder)}, token {holder.token}")
        if not _sure(options):
            say("not broken")
            return codes.UNMET
        return _break(client, options, holder)


def _asked(options: argparse.Namespace) -> bool:
    return not options.yes and options.token is None


def _need_a_reason(options: argparse.Namespace) -> None:
    if sys.stdin is not None and sys.stdin.isatty():
        return
    if _asked(options):
        raise Usage("nobody is there to be asked: give --yes or --token T, and --reason TEXT")
    if not options.reason:
        raise Usage("say why: --reason TEXT is needed when nobody is there to be asked")


def _sure(options: argparse.Namespace) -> bool:
    if not _asked(options):
        return True
    name: str = options.name
    return ask(f"type {name} to break it: ") == name


def _break(client: Client, options: argparse.Namespace, holder: Holder) -> int:
    # Only the grant that was shown: it may have been released and taken meanwhile.
    token = holder.token if options.token is None else options.token
    broken = client.break_lock(options.name, token=token)
    if broken is None:
        say(f"{options.name!r} has become free just now")
    elif not options.quiet:
        why = f": {options.reason}" if options.reason else ""
        say(f"broke {options.name!r}, token {broken.token}{why}")
    return 0
