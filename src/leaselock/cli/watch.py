"""leader, watch, and waiting until a lock is held: who holds a lock, and each change."""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leaselock import LeaselockError, LockChange, StoreError
from leaselock.cli import exit_codes
from leaselock.cli.answer import answer
from leaselock.cli.exit_codes import Negative
from leaselock.cli.formatting import describe
from leaselock.cli.output import say
from leaselock.cli.signals import Signals
from leaselock.cli.store import open_client
from leaselock.documents import holder_document, utc_time

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from leaselock import Client, Holder, Lock

NEVER = float("inf")
# Seconds between two looks at all locks that match a pattern: stores notify of single names.
INTERVAL = 0.5
# For so many seconds after an answer the store may be silent, as for one name: a restart.
TOLERATED_SILENCE = 30.0
WILDCARDS = re.compile(r"[*?[]")


def do_leader(options: argparse.Namespace) -> int:
    """Print who leads."""
    with open_client(options) as client:
        leader = client.election(options.name).leader()
    if leader is None:
        details = {"name": options.name, "leader": None}
        text = f"{options.name!r} has no leader"
        raise Negative(text, exit_codes.UNMET, "no leader", details)
    if options.json:
        answer(options, {"name": options.name, "leader": holder_document(leader)})
    else:
        print(describe(leader))
    return 0


def do_watch(options: argparse.Namespace) -> int:
    """Print a line of JSON for each change, until a signal comes."""
    with Signals() as signals, open_client(options) as client:
        if WILDCARDS.search(options.pattern):
            _watch_pattern(client, options, signals)
        with ended_by(client, signals, NEVER):
            for change in client.lock(options.pattern).watch():
                _print(change, options)
        signals.check()
    return 0


def _watch_pattern(client: Client, options: argparse.Namespace, signals: Signals) -> None:
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
        found = {
            lock.name: LockChange(lock.name, lock.holder)
            for lock in locks
            if lock.holder is not None
        }
        for name, change in ({name: LockChange(name, None) for name in known} | found).items():
            before = known.get(name)
            if before is None or _state(before) != _state(change):
                _print(change, options)
        known = found
        signals.wait(INTERVAL)
        signals.check()


def _state(change: LockChange) -> object:
    holder = change.holder
    return None if holder is None else (holder.token, holder.since, holder.cooling_down)


def _print(change: LockChange, options: argparse.Namespace) -> None:
    now = time.time()
    when = {"at": now, "at_utc": utc_time(now), "name": change.name, "event": _event(change.holder)}
    answer(options, when | {"holder": holder_document(change.holder)})


def _event(holder: Holder | None) -> str:
    if holder is None:
        return "free"
    return "cooling down" if holder.cooling_down else "held"


def wait_until_held(client: Client, lock: Lock, signals: Signals, deadline: float) -> bool:
    """Wait until the lock is held; False at *deadline*, a time of the monotonic clock."""
    with ended_by(client, signals, deadline):
        held = any(change.holder is not None for change in lock.watch())
    signals.check()
    return held


@contextmanager
def ended_by(client: Client, signals: Signals, deadline: float) -> Iterator[None]:
    """Close the client at a signal that ends the command or at *deadline*, which ends a wait."""
    finished = False

    def attend() -> None:
        while not finished and signals.ending is None and time.monotonic() < deadline:
            signals.wait(deadline - time.monotonic())
        if not finished:
            client.close()

    thread = threading.Thread(target=attend, name="leaselock-attendant", daemon=True)
    thread.start()
    try:
        yield
    except LeaselockError:
        if signals.ending is None and time.monotonic() < deadline:
            raise
    finally:
        finished = True
        signals.wake()
        thread.join()
