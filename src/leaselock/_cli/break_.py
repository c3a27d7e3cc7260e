"""break: take a lock from its holder by force."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.answer import answer
from leaselock._cli.exit_codes import Usage
from leaselock._cli.formatting import wanted
from leaselock._cli.output import prompt, say
from leaselock._cli.store import open_client
from leaselock._cli.tokens import state_of
from leaselock.documents import holder_document

if TYPE_CHECKING:
    from leaselock import Client, Holder
    from leaselock._cli.options import BreakOptions


def do_break(options: BreakOptions) -> int:
    """Break a lock, after confirmation."""
    with open_client(options) as client:
        lock = client.lock(options.name)
        _require_message(options)
        holders = lock.holders()
        if not holders:
            return _report_break(options, None, f"{options.name!r} is free")
        for holder in holders:
            say(f"{options.name!r} is {state_of(holder)}{wanted(holder)}")
        if not _confirmed(options):
            _report_break(options, None, "not broken")
            return exit_codes.UNMET
        if options.token is not None:
            holders = holders[:1]
        return max(_break(client, options, holder) for holder in holders)


def _needs_confirmation(options: BreakOptions) -> bool:
    return not options.yes and options.token is None


def _require_message(options: BreakOptions) -> None:
    if sys.stdin is not None and sys.stdin.isatty():
        return
    if _needs_confirmation(options):
        raise Usage("stdin is not a terminal: give --yes or --token T, and --message TEXT")
    if not options.message:
        raise Usage("--message TEXT is required when stdin is not a terminal")


def _confirmed(options: BreakOptions) -> bool:
    if not _needs_confirmation(options):
        return True
    name: str = options.name
    return prompt(f"type {name} to break it: ") == name


def _break(client: Client, options: BreakOptions, holder: Holder) -> int:
    # Break only the grant that was shown: the lock may have changed hands since.
    token = holder.token if options.token is None else options.token
    broken = client.break_lock(options.name, token=token)
    if broken is None:
        return _report_break(options, None, f"{options.name!r} has become free just now")
    reason = f": {options.message}" if options.message else ""
    return _report_break(options, broken, f"broke {options.name!r}, {_named(broken)}{reason}")


def _named(holder: Holder) -> str:
    return "a hold without a token" if holder.token is None else f"token {holder.token}"


def _report_break(options: BreakOptions, broken: Holder | None, text: str) -> int:
    if options.json:
        answer(options, {"name": options.name, "broken": holder_document(broken)})
    elif not options.quiet:
        say(text)
    return 0
