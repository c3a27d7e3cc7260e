"""show: one lock, its holders and its waiters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leaselock import LockInfo
from leaselock._cli.answer import answer
from leaselock._cli.deadlocks import deadlock_lines, deadlocks_of, names_in
from leaselock._cli.formatting import escape, format_duration, short_name, time_held, wanted
from leaselock._cli.listing import shown_name, unreadable_lines
from leaselock._cli.store import open_client
from leaselock.documents import lock_document
from leaselock.process_identity import is_stale, program_of

if TYPE_CHECKING:
    from leaselock import Holder
    from leaselock._cli.options import NameOptions


def do_show(options: NameOptions) -> int:
    """Show one lock."""
    with open_client(options) as client:
        mutex = client.lock(options.name)
        # A list by pattern reads the holder and the waiters at the same moment. But another
        # program's hold may be found only where its lock is asked for.
        listed = client.locks(re.sub(r"([*?[])", r"[\1]", mutex.name))
        lock = next(iter(listed), None)
        if lock is None or (lock.unreadable and not lock.holders and not lock.waiters):
            # Of an unreadable lock, `holder` raises the reason.
            lock = LockInfo(mutex.name, mutex.holder(), tuple(mutex.waiters()))
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
    name = shown_name(lock.name)
    lines = [line for holder in holders for line in _holder_lines(name, holder)]
    if not holders and not lock.unreadable:
        lines = [f"{name}: free"]
    if lock.permits:
        held = sum(holder.permits for holder in holders)
        lines.insert(0, f"{name}: {held} of {lock.permits} permits held")
    for position, waiter in enumerate(lock.waiters, 1):
        label = f" ({waiter.label})" if waiter.label else ""
        waiting = f"waiting {time_held(waiter)}{wanted(waiter)}"
        lines.append(f"  {position}. {short_name(waiter)}{label}, {waiting}")
    return [*(escape(line) for line in lines), *unreadable_lines(lock)]


def descendants_of(holder: Holder) -> str:
    """Return who keeps a lock whose own process has ended."""
    seen = [pid for pid in holder.descendants if pid]
    if not seen:
        return "processes of another user, which the holder has started"
    programs = [f"{pid} ({name})" if (name := program_of(pid)) else f"{pid}" for pid in seen]
    word = "process" if len(seen) == 1 else "processes"
    return f"{word} {', '.join(programs)}, which the holder has started"


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
    if holder.descendants:
        lines.append(f"  still at work: {descendants_of(holder)}; do not break it, end them")
    if holder.detached:
        lines.append("  detached: it outlives its command, and is not renewed")
    return lines
