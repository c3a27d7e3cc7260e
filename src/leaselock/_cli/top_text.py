"""What `leaselock top` shows, as text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from leaselock._cli.deadlocks import deadlock_lines
from leaselock._cli.formatting import elapsed, escape, format_duration, short_name
from leaselock._cli.listing import (
    COLUMNS,
    NOTHING,
    cut,
    cut_middle,
    shown_name,
    sorted_locks,
)
from leaselock._cli.show import lock_lines
from leaselock.live import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock import Holder, LockInfo, Waiter
    from leaselock.live import Change, View

DEADLOCKED, LATE, UNMARKED = "!", "~", " "
LEGEND = f"{DEADLOCKED} part of a deadlock   {LATE} less than half of its lease is left"
# Columns that need a wider terminal, and how wide it must be.
WIDE = {"WAIT": 50, "LEASE": 60, "OLDEST": 68, "TOKEN": 100, "LABEL": 124}
WIDTHS = {"HELD": 6, "LEASE": 6, "WAIT": 5, "OLDEST": 6, "TOKEN": 16, "LABEL": 20}
# The table has the first of them: with 20,000, textual takes minutes for each new view.
MOST_ROWS = 500
# The padding of a column, and what the frame of the table takes.
PADDING, FRAME = 2, 2


def _oldest(lock: LockInfo) -> str:
    waits = [waited for waiter in lock.waiters if (waited := elapsed(waiter)) is not None]
    return format_duration(max(waits)) if waits else NOTHING


CELLS: dict[str, Callable[[LockInfo], str]] = {
    "NAME": COLUMNS["NAME"],
    "HOLDER": COLUMNS["HOLDER"],
    "HELD": COLUMNS["SINCE"],
    "LEASE": COLUMNS["LEASE"],
    "WAIT": COLUMNS["WAITERS"],
    "OLDEST": _oldest,
    "TOKEN": COLUMNS["TOKEN"],
    "LABEL": COLUMNS["LABEL"],
}


class Row(NamedTuple):
    """One line of the table."""

    name: str
    """The lock, as it is called."""
    mark: str
    cells: tuple[str, ...]


# These are cut in the middle: what begins alike differs at the end.
ENDS_MATTER = ("NAME", "HOLDER")


def column_widths(width: int) -> dict[str, int]:
    """Return the columns for a terminal of that *width*; NAME and HOLDER share what is left."""
    visible = {name: each for name, each in WIDTHS.items() if width >= WIDE.get(name, 0)}
    room = width - FRAME - sum(visible.values()) - PADDING * (len(visible) + 2)
    name = max(12, room // 2)
    return {"NAME": name, "HOLDER": max(12, room - name), **visible}


def matching(view: View, *, sort: str, only: str) -> list[LockInfo]:
    """Return the locks that contain the text *only*, in the order *sort*."""
    locks = sorted_locks(view.locks, sort)
    text = only.casefold()
    return [lock for lock in locks if matches(lock, text)] if text else locks


def rows(view: View, locks: Sequence[LockInfo], *, widths: dict[str, int]) -> list[Row]:
    """Return the table of these locks."""
    rows = []
    for lock in locks:
        mark = mark_of(view, lock)
        texts = {name: escape(CELLS[name](lock)) for name in widths}
        texts["NAME"] = f"{mark} {texts['NAME']}"
        cells = tuple(
            (cut_middle if name in ENDS_MATTER else cut)(texts[name], width)
            for name, width in widths.items()
        )
        rows.append(Row(lock.name, mark, cells))
    return rows


def matches(lock: LockInfo, text: str) -> bool:
    """Return whether the text, in small letters, is part of the lock's name, of a label, or of the
    name of a holder or waiter.
    """
    if text in lock.name.casefold():
        return True
    people: list[Holder | Waiter] = [*lock.holders, *lock.waiters]
    return any(text in f"{short_name(one)} {one.label or ''}".casefold() for one in people)


def mark_of(view: View, lock: LockInfo) -> str:
    """Return how the lock is marked."""
    if lock.name in view.deadlocked:
        return DEADLOCKED
    for hold in lock.holders:
        lease = view.leases.get(key_of(lock.name, hold), 0.0)
        ends = hold.detached or hold.cooling_down or hold.remaining is None
        if not ends and hold.remaining < lease / 2:  # type: ignore[operator]
            return LATE
    return UNMARKED


def summary(view: View, *, sort: str, only: str, paused: bool) -> str:
    """Return the figures of the store in one line."""
    held = sum(bool(lock.holders) for lock in view.locks)
    waiting = sum(len(lock.waiters) for lock in view.locks)
    count = len(view.deadlocks)
    unreadable = sum(lock.unreadable is not None for lock in view.locks)
    # What is longer than the terminal is cut at its end.
    parts = [
        *(["PAUSED"] if paused else []),
        *([f"only {escape(only)!r}:"] if only else []),
        f"{held} held",
        f"{waiting} waiting",
        *([f"{count} DEADLOCK{'S' * (count > 1)}"] if count else []),
        *([f"{unreadable} UNREADABLE"] if unreadable else []),
        f"{view.grants_per_second:.1f} grants/s",
        f"{view.losses} lost",
        f"by {sort}",
    ]
    return "  ".join(parts)


def problem(view: View) -> str:
    """Return why the store cannot be read; empty if it can."""
    if view.error is None:
        return ""
    known = f"as of {format_duration(time.time() - view.at)} ago; " if view.at else ""
    return f"{known}{escape(view.error)}"


def details(view: View, name: str) -> list[str]:
    """Return one lock as lines: its holders, its waiters in order, and its deadlocks."""
    lock = next((lock for lock in view.locks if lock.name == name), None)
    if lock is None:
        return [f"{shown_name(name)}: free"]
    lines = lock_lines(lock)
    for deadlock in view.deadlocks:
        if any(wait.name == name for wait in deadlock):
            lines += deadlock_lines(deadlock)
    return lines


def events(view: View) -> list[str]:
    """Return what happened lately, the newest first."""
    return [_event(change) for change in reversed(view.recent)]


def _event(change: Change) -> str:
    when = time.strftime("%H:%M:%S", time.localtime(change.at))
    how = ""
    if change.seconds:
        verb = "after waiting" if change.kind in ("granted", "left") else "held"
        how = f", {verb} {format_duration(change.seconds)}"
    who = escape(short_name(change.who))
    return f"{when}  {change.kind:8}  {shown_name(change.name)}  {who}{how}"
