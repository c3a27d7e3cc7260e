"""break: take a lock from its holder by force."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.cli import Usage, codes
from holdfast.cli.show import who
from holdfast.cli.store import client_of

if TYPE_CHECKING:
    import argparse

    from holdfast import Client, Holder


def do_break(options: argparse.Namespace) -> int:
    """Break a lock, once somebody is sure of it."""
    with client_of(options) as client:
        holder = client.lock(options.name).holder()
        if holder is None:
            print(f"holdfast: {options.name!r} is free", file=sys.stderr)
            return 0 if options.token is None else codes.NOT_HELD
        print(f"{options.name!r} is held by {who(holder)}, token {holder.token}", file=sys.stderr)
        if not _sure(options):
            print("holdfast: not broken", file=sys.stderr)
            return codes.USAGE
        return _break(client, options, holder)


def _sure(options: argparse.Namespace) -> bool:
    if options.yes or options.token is not None:
        if not options.reason and not sys.stdin.isatty():
            raise Usage("say why: --reason TEXT is needed when nobody is asked")
        return True
    if not sys.stdin.isatty():
        raise Usage("nobody is there to be asked: give --yes or --token, and --reason")
    print(f"type {options.name} to break it: ", end="", file=sys.stderr, flush=True)
    typed = sys.stdin.readline().rstrip("\n")
    return bool(typed == options.name)


def _break(client: Client, options: argparse.Namespace, holder: Holder) -> int:
    # Only the grant that was shown: it may have been released and taken meanwhile.
    token = holder.token if options.token is None else options.token
    broken = client.break_lock(options.name, token=token)
    if broken is not None and not options.quiet:
        why = f": {options.reason}" if options.reason else ""
        print(f"holdfast: broke {options.name!r}, token {broken.token}{why}", file=sys.stderr)
    return 0
