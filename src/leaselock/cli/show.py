"""ls and show: holders and waiters as text or as JSON."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from leaselock import LeaselockError, LockInfo
from leaselock.cli import exit_codes
from leaselock.cli.answer import answer
from leaselock.cli.deadlocks import deadlock_lines, deadlocks_of, names_in
from leaselock.cli.exit_codes import Usage
from leaselock.cli.formatting import (
    escape,
    format_duration,
    short_name,
    time_held,
    wanted,
)
from leaselock.cli.listing import layout, sorted_locks
from leaselock.cli.output import columns, escapes_allowed, is_terminal, lines, painter
from leaselock.cli.signals import Signals
from leaselock.cli.store import open_client
from leaselock.documents import lock_document
from leaselock.process_identity import is_stale

if TYPE_CHECKING:
    import argparse

    from leaselock import Client, Holder

CLEAR_SCREEN = "\x1b[H\x1b[2J"
SHORTEST_INTERVAL = 0.1


def do_ls(options: argparse.Namespace) -> int:
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
    elif text := _list_text(listing, options):
        print(text)
    return exit_codes.UNMET if options.exit_code and not listing.locks else 0


class Listing(NamedTuple):
    """The locks that match, and the names of all locks that are part of a deadlock."""

    locks: list[LockInfo]
    deadlocked: frozenset[str]

    def document(self) -> dict[str, object]:
        """The answer as JSON."""
        found = self.deadlocked
        documents = [lock_document(lock, deadlocked=lock.name in found) for lock in self.locks]
        return {"locks": documents}


def _read(client: Client, options: argparse.Namespace) -> Listing:
    locks = sorted_locks(client.locks(options.pattern), options.sort)
    if options.stale:
        locks = [lock for lock in locks if any(map(is_stale, lock.holders))]
    return Listing(locks, names_in(deadlocks_of(client, locks)))


def _list_text(listing: Listing, options: argparse.Namespace) -> str:
    terminal = is_terminal(sys.stdout)
    if listing.locks:
        width = columns(sys.stdout) if terminal else None
        return "\n".join(layout(listing.locks, width, painter(options), listing.deadlocked))
    if not terminal or options.quiet:
        return ""
    which = "" if options.pattern == "*" else f" match {escape(options.pattern)!r}"
    return f"no locks{which} in {options.store}"


def _watch(client: Client, options: argparse.Namespace, signals: Signals) -> NoReturn:
    """List the locks until a signal ends it. A store that does not answer is shown, for
    it may answer the next time.
    """
    while True:
        try:
            listing = _read(client, options)
        except LeaselockError as error:
            text = escape(str(error))
        else:
            text = _list_text(listing, options)
            if options.json:
                answer(options, listing.document())
        if not options.json:
            _show_again(text, options)
        signals.wait(options.interval)
        signals.check()


def _show_again(text: str, options: argparse.Namespace) -> None:
    if not escapes_allowed(options, sys.stdout):
        print(f"{text}\n", flush=True)
        return
    head = f"{options.store}  every {format_duration(options.interval)}  {time.strftime('%X')}"
    shown, height = text.splitlines(), lines(sys.stdout) - 3
    if len(shown) > height:
        shown = [*shown[:height], f"({len(shown) - height} more lines)"]
    print(CLEAR_SCREEN + "\n".join([head[: columns(sys.stdout)], "", *shown]), flush=True)


def do_show(options: argparse.Namespace) -> int:
    """Show one lock."""
    with open_client(options) as client:
        asked = client.lock(options.name)
        # A list by pattern reads the holder and the waiters at the same moment. But another
        # program's hold may be found only where its lock is asked for.
        listed = client.locks(re.sub(r"([*?[])", r"[\1]", asked.name))
        lock = next(iter(listed), None)
        if lock is None:
            lock = LockInfo(asked.name, asked.holder(), tuple(asked.waiters()))
        deadlocks = [
            deadlock
            for deadlock in deadlocks_of(client, [lock])
            if lock.name in names_in([deadlock])
        ]
    if options.json:
        answer(options, {"lock": lock_document(lock, deadlocked=bool(deadlocks))})
    else:
        lines = [line for deadlock in deadlocks for line in deadlock_lines(deadlock)]
        print("\n".join([*lock_lines(lock), *lines]))
    return 0


def lock_lines(lock: LockInfo) -> list[str]:
    """Return one lock as lines of text."""
    holders = lock.holders or ((lock.holder,) if lock.holder is not None else ())
    lines = [line for holder in holders for line in _holder_lines(lock.name, holder)]
    if not holders:
        lines = [f"{lock.name}: free"]
    if lock.permits:
        held = sum(holder.permits for holder in holders)
        lines.insert(0, f"{lock.name}: {held} of {lock.permits} permits held")
    for place, waiter in enumerate(lock.waiters, 1):
        label = f" ({waiter.label})" if waiter.label else ""
        lines.append(
            f"  {place}. {short_name(waiter)}{label}, waiting {time_held(waiter)}{wanted(waiter)}"
        )
    return [escape(line) for line in lines]


def _holder_lines(name: str, holder: Holder) -> list[str]:
    token = "no token" if holder.token is None else f"token {holder.token}"
    held = time_held(holder) if holder.since else ", since unknown"
    lines = [f"{name}: held by {short_name(holder)} {held}, {token}".replace(" ,", ",")]
    if holder.cooling_down:
        lines = [f"{name}: cooling down, held last by {short_name(holder)}, {token}"]
    if how := wanted(holder):
        lines[0] += how
    if holder.label:
        lines.append(f"  label: {holder.label}")
    if holder.remaining is not None and holder.cooling_down:
        lines.append(f"  free in {format_duration(holder.remaining)}")
    elif holder.remaining is not None:
        lines.append(f"  lease: {format_duration(holder.remaining)} left")
    if is_stale(holder):
        lines.append("  its process has ended, and cannot release it")
    if holder.detached:
        lines.append("  detached: it outlives its command, and is not renewed")
    return lines
