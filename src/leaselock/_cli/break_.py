"""break: take a lock from its holder by force."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.answer import answer
from leaselock._cli.exit_codes import Negative, Usage
from leaselock._cli.formatting import format_duration, wanted
from leaselock._cli.output import is_terminal, prompt, say
from leaselock._cli.store import open_client
from leaselock._cli.tokens import state_of
from leaselock.documents import holder_document

if TYPE_CHECKING:
    from leaselock import Client, Holder
    from leaselock._cli.options import BreakOptions

WILDCARDS = re.compile(r"[*?[]")


def do_break(options: BreakOptions) -> int:
    """Break a lock, after confirmation."""
    with open_client(options) as client:
        lock = client.lock(options.name)
        _require_message(options)
        holders = lock.holders()
        if not holders:
            raise _nothing_to_break(options)
        for holder in holders:
            say(f"{options.name!r} is {state_of(holder)}{wanted(holder)}{_goes_on(holder)}")
        if not _confirmed(options):
            raise _not_broken(options, "not broken", "not broken")
        if options.token is not None:
            holders = holders[:1]
        broken = [one for holder in holders if (one := _break(client, options, holder)) is not None]
    if not broken:
        raise _not_broken(options, f"{options.name!r} has become free just now", "free")
    if options.json:
        answer(options, {"name": options.name, "broken": holder_document(broken[0])})
    return 0


def _nothing_to_break(options: BreakOptions) -> Exception:
    name = options.name
    if WILDCARDS.search(name):
        # A name may have such characters, and then it is held.
        return Usage(
            f"break takes one name, and no lock {name!r} is held: "
            f"`leaselock ls {shlex.quote(name)}` lists those that match the pattern"
        )
    return _not_broken(options, f"{name!r} is free in {options.store}: nothing to break", "free")


def _not_broken(options: BreakOptions, text: str, kind: str) -> Negative:
    return Negative(text, exit_codes.UNMET, kind, {"name": options.name, "broken": None})


def _goes_on(holder: Holder) -> str:
    """For how long the holder goes on: as the end of a sentence."""
    if holder.cooling_down or holder.detached:
        return ""
    longest = (
        "" if holder.remaining is None else f", for {format_duration(holder.remaining)} at most"
    )
    return f". It works on until it notices, at its next renewal{longest}"


def _needs_confirmation(options: BreakOptions) -> bool:
    return not options.yes and options.token is None


def _require_message(options: BreakOptions) -> None:
    if is_terminal(sys.stdin):
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


def _break(client: Client, options: BreakOptions, holder: Holder) -> Holder | None:
    # Break only the grant that was shown: the lock may have changed hands since.
    token = holder.token if options.token is None else options.token
    broken = client.break_lock(options.name, token=token, message=options.message)
    if broken is not None and not (options.json or options.quiet):
        reason = f": {options.message}" if options.message else ""
        say(f"broke {options.name!r}, {_named(broken)}{reason}")
    return broken


def _named(holder: Holder) -> str:
    return "a hold without a token" if holder.token is None else f"token {holder.token}"
