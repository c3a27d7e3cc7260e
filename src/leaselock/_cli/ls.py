"""ls: the locks of a store, as text or as JSON."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from leaselock import LeaselockError
from leaselock._cli import exit_codes
from leaselock._cli.answer import answer
from leaselock._cli.deadlocks import deadlocks_of, names_in
from leaselock._cli.exit_codes import Usage
from leaselock._cli.formatting import escape, format_duration
from leaselock._cli.listing import layout, sorted_locks
from leaselock._cli.output import columns, escapes_allowed, is_terminal, lines, painter, say
from leaselock._cli.signals import Signals
from leaselock._cli.store import open_client
from leaselock.documents import lock_document
from leaselock.process_identity import is_stale

if TYPE_CHECKING:
    from leaselock import Client, LockInfo
    from leaselock._cli.options import ListOptions

CLEAR_SCREEN = "\x1b[H\x1b[2J"
SHORTEST_INTERVAL = 0.1
WILDCARDS = re.compile(r"[*?[]")


def do_ls(options: ListOptions) -> int:
    """List locks."""
    if options.interval < SHORTEST_INTERVAL:
        raise Usage("--interval is at least 100ms")
    if options.watch:
        with Signals() as signals, open_client(options) as client:
            _watch(client, options, signals)
    with open_client(options) as client:
        listing = _read(client, options)
    if options.json:
        answer(options, listing.document())
    else:
        if text := _list_text(listing, options):
            print(text)
        if not (listing.complete or options.quiet) and is_terminal(sys.stdout):
            say("locks of other programs may be missing: --all looks at all keys")
    return exit_codes.UNMET if options.exit_code and not listing.locks else 0


class Listing(NamedTuple):
    """The locks that match, and the names of all locks that are part of a deadlock."""

    locks: list[LockInfo]
    deadlocked: frozenset[str]
    complete: bool
    """Not only the index of the store was read."""

    def document(self) -> dict[str, object]:
        """The answer as JSON."""
        deadlocked = self.deadlocked
        documents = [lock_document(lock, deadlocked=lock.name in deadlocked) for lock in self.locks]
        return {"locks": documents, "complete": self.complete}


def _read(client: Client, options: ListOptions) -> Listing:
    locks = sorted_locks(client.locks(options.pattern, walk=options.all), options.sort)
    if options.stale:
        locks = [lock for lock in locks if any(map(is_stale, lock.holders))]
    if options.hide_cooling:
        locks = [lock for lock in locks if not _only_cools(lock)]
    # A lock that is named is read itself.
    complete = options.all or not client.indexed or not WILDCARDS.search(options.pattern)
    return Listing(locks, names_in(deadlocks_of(client, locks)), complete)


def _only_cools(lock: LockInfo) -> bool:
    """Whether the lock has neither a holder nor a waiter, and only stays taken for a while."""
    cooling = all(holder.cooling_down for holder in lock.holders)
    return bool(lock.holders) and cooling and not (lock.waiters or lock.unreadable)


def _list_text(listing: Listing, options: ListOptions) -> str:
    terminal = is_terminal(sys.stdout)
    if listing.locks:
        width = columns(sys.stdout) if terminal else None
        return "\n".join(layout(listing.locks, width, painter(options), listing.deadlocked))
    if not terminal or options.quiet:
        return ""
    which = "" if options.pattern == "*" else f" match {escape(options.pattern)!r}"
    return f"no locks{which} in {options.store}"


def _watch(client: Client, options: ListOptions, signals: Signals) -> NoReturn:
    """List the locks until a signal ends it. A store that does not answer is shown, for
    it may answer the next time.
    """
    while True:
        try:
            listing = _read(client, options)
        except LeaselockError as error:
            text = escape(str(error))
            if options.json:
                code = exit_codes.exit_code(error)
                answer(options, {"error": exit_codes.KINDS[code], "message": str(error)})
        else:
            text = _list_text(listing, options)
            if options.json:
                answer(options, listing.document())
        if not options.json:
            _show_again(text, options)
        signals.wait(options.interval)
        signals.check()


def _show_again(text: str, options: ListOptions) -> None:
    if not escapes_allowed(options, sys.stdout):
        print(f"{text}\n", flush=True)
        return
    head = f"{options.store}  every {format_duration(options.interval)}  {time.strftime('%X')}"
    visible, height = text.splitlines(), lines(sys.stdout) - 3
    if len(visible) > height:
        visible = [*visible[:height], f"({len(visible) - height} more lines)"]
    print(CLEAR_SCREEN + "\n".join([head[: columns(sys.stdout)], "", *visible]), flush=True)
