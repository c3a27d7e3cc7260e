"""watch: each change of the holder of a lock."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from leaselock import LockChange, StoreError
from leaselock._cli.answer import answer
from leaselock._cli.output import say
from leaselock._cli.signals import Signals
from leaselock._cli.store import open_client
from leaselock._cli.watching import ended_by
from leaselock.documents import holder_document, utc_time

if TYPE_CHECKING:
    from leaselock import Client, Holder
    from leaselock._cli.options import WatchOptions

NEVER = float("inf")
# Seconds between two looks at all locks that match a pattern: stores notify of single names.
INTERVAL = 0.5
# Seconds after an answer for which the store may be silent, as for one name: a restart.
TOLERATED_SILENCE = 30.0
WILDCARDS = re.compile(r"[*?[]")


def do_watch(options: WatchOptions) -> int:
    """Print a line of JSON for each change, until a signal comes."""
    with Signals() as signals, open_client(options) as client:
        if WILDCARDS.search(options.pattern):
            _watch_pattern(client, options, signals)
        with ended_by(client, signals, NEVER):
            for change in client.lock(options.pattern).watch():
                _print(change, options)
        signals.check()
    return 0


def _watch_pattern(client: Client, options: WatchOptions, signals: Signals) -> None:
    known: dict[str, LockChange] = {}
    answered, silent = float("-inf"), False
    while True:
        try:
            locks = client.locks(options.pattern)
        except StoreError as error:
            if time.monotonic() > answered + TOLERATED_SILENCE:
                raise
            if not silent:
                say(f"cannot read the locks, and tries again: {error}")
            silent = True
            signals.wait(INTERVAL)
            signals.check()
            continue
        answered, silent = time.monotonic(), False
        current = {
            lock.name: LockChange(lock.name, lock.holder)
            for lock in locks
            if lock.holder is not None
        }
        for name, change in ({name: LockChange(name, None) for name in known} | current).items():
            before = known.get(name)
            if before is None or _state(before) != _state(change):
                _print(change, options)
        known = current
        signals.wait(INTERVAL)
        signals.check()


def _state(change: LockChange) -> object:
    holder = change.holder
    return None if holder is None else (holder.token, holder.since, holder.cooling_down)


def _print(change: LockChange, options: WatchOptions) -> None:
    now = time.time()
    when = {"at": now, "at_utc": utc_time(now), "name": change.name, "event": _event(change.holder)}
    answer(options, when | {"holder": holder_document(change.holder)})


def _event(holder: Holder | None) -> str:
    if holder is None:
        return "free"
    return "cooling down" if holder.cooling_down else "held"
