"""The list of locks: a table, or two lines for each lock on a terminal too narrow for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli.formatting import (
    escape,
    format_duration,
    short_name,
    time_held,
    time_since,
)
from leaselock._cli.output import BOLD, RED, YELLOW
from leaselock.process_identity import is_stale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leaselock import Holder, LockInfo

    Paint = Callable[[str, str], str]

NOTHING = "-"
UNREADABLE = "unreadable"
CUT = "..."
SEPARATOR = "  "
# How long the name of a lock of this library may be. Other programs' names may have any length.
LONGEST_NAME = 255
# As many columns are shown of the reason why a record cannot be read. It has the key twice.
LONGEST_REASON = 1000
# As many columns are shown of the numbers of permits, of which there may be a thousand.
LONGEST_SLOTS = 40
# Follows the number of waiters.
DEADLOCK = " (deadlock)"
# A label is not cut to less than this, but left out.
SHORTEST_LABEL = 8
NEVER = float("inf")


def _remaining(lock: LockInfo) -> float:
    left = lock.holder.remaining if lock.holder is not None else None
    return NEVER if left is None else left


def oldest_wait(lock: LockInfo) -> float:
    """When the first of its waiters began to wait, in Unix time."""
    return min((waiter.since for waiter in lock.waiters), default=NEVER)


# The order of the list, for each of `options.SORT_KEYS`; the name decides between equals.
SORT: dict[str, Callable[[LockInfo], float]] = {
    "name": lambda lock: 0.0,
    "since": lambda lock: (lock.holder.since or NEVER) if lock.holder is not None else NEVER,
    "lease": _remaining,
    "waiters": lambda lock: -len(lock.waiters),
    "wait": oldest_wait,
    "token": lambda lock: (lock.holder.token or 0) if lock.holder is not None else 0,
}


def sorted_locks(locks: Iterable[LockInfo], key: str) -> list[LockInfo]:
    """Return the locks in the order of a key of `SORT`."""
    return sorted(locks, key=lambda lock: (SORT[key](lock), lock.name))


def _of_holder(text: Callable[[Holder], str]) -> Callable[[LockInfo], str]:
    return lambda lock: NOTHING if lock.holder is None else text(lock.holder)


def _who(holder: Holder) -> str:
    if holder.cooling_down:
        return f"{holder.host}:{holder.pid} (cooling down)"
    if holder.detached:
        return f"{holder.host}:{holder.pid} (detached)"
    slots = f" slot {slot_ranges(holder.slots)}" if holder.slots else ""
    state = " (gone)" if is_stale(holder) else ""
    if holder.descendants:
        state = " (gone, its command goes on)"
    return f"{short_name(holder)}{slots}{state}"


def _holders(lock: LockInfo) -> str:
    if lock.holder is None:
        return UNREADABLE if lock.unreadable else NOTHING
    return _who(lock.holder) + _others(lock)


def _others(lock: LockInfo) -> str:
    """How many holders there are besides the first one, and the numbers of their permits."""
    others = lock.holders[1:]
    slots = [slot for holder in others for slot in holder.slots]
    part = f" (slots {slot_ranges(slots)})" if slots else ""
    return f" and {len(others)} more{part}" if others else ""


def slot_ranges(slots: Iterable[int]) -> str:
    """Return numbers as text, those that follow one another as a range: 0-2, 5."""
    ranges: list[list[int]] = []
    for slot in sorted(slots):
        if ranges and slot == ranges[-1][1] + 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return cut(", ".join(texts), LONGEST_SLOTS)


def _left(holder: Holder) -> str:
    return NOTHING if holder.remaining is None else format_duration(holder.remaining)


def _token(holder: Holder) -> str:
    return NOTHING if holder.token is None else str(holder.token)


# The last one is cut where the terminal ends, or left out.
COLUMNS: dict[str, Callable[[LockInfo], str]] = {
    "NAME": lambda lock: shown_name(lock.name),
    "HOLDER": _holders,
    "SINCE": _of_holder(time_since),
    "LEASE": _of_holder(_left),
    "TOKEN": _of_holder(_token),
    "WAITERS": lambda lock: str(len(lock.waiters)),
    "LABEL": lambda lock: (lock.holder.label or "") if lock.holder is not None else "",
}


def layout(
    locks: Sequence[LockInfo],
    width: int | None,
    paint: Paint,
    deadlocked: frozenset[str] = frozenset(),
) -> list[str]:
    """Return the lines of the list, for a terminal of that *width* or, without one, for a file.
    *deadlocked* are the names of the locks that are part of a deadlock. Below the list, a line for
    each lock with a record that cannot be read says why.
    """
    listed = _listed(locks, width, paint, deadlocked)
    return [*listed, *(paint(line, RED) for lock in locks for line in unreadable_lines(lock))]


def unreadable_lines(lock: LockInfo) -> list[str]:
    """Return why a record of the lock cannot be read, as a line; none if all can."""
    if not lock.unreadable:
        return []
    reason = cut_middle(escape(lock.unreadable), LONGEST_REASON)
    return [f"{shown_name(lock.name)}: unreadable: {reason}"]


def shown_name(name: str) -> str:
    """Return the name of a lock as it is printed: whole if a lock of this library can have it."""
    escaped = escape(name)
    return escaped if len(name) <= LONGEST_NAME else cut_middle(escaped, LONGEST_NAME)


def _listed(
    locks: Sequence[LockInfo], width: int | None, paint: Paint, deadlocked: frozenset[str]
) -> list[str]:
    rows = [tuple(COLUMNS), *(table_row(lock, lock.name in deadlocked) for lock in locks)]
    lines = table(rows)
    if width is not None and max(map(display_width, lines)) > width:
        without_label = [row[:-1] for row in rows]
        room = width - max(map(display_width, table(without_label))) - len(SEPARATOR)
        if room < -len(SEPARATOR):
            return [
                line
                for lock in locks
                for line in _narrow(lock, width, paint, lock.name in deadlocked)
            ]
        if room < SHORTEST_LABEL:
            lines = table(without_label)
        else:
            lines = table([(*row[:-1], cut(escape(row[-1]), room)) for row in rows])
    return [paint(lines[0], BOLD), *_marked(locks, lines[1:], paint, deadlocked)]


def _marked(
    locks: Sequence[LockInfo], lines: Sequence[str], paint: Paint, deadlocked: frozenset[str]
) -> list[str]:
    """Colour the locks that need a person to look."""
    return [
        paint(line, _colour(lock, lock.name in deadlocked))
        for lock, line in zip(locks, lines, strict=True)
    ]


def _colour(lock: LockInfo, deadlocked: bool) -> str:
    """Red in a deadlock or with an unreadable record, yellow where no process holds the lock."""
    if deadlocked or lock.unreadable:
        return RED
    return YELLOW if lock.holder is not None and lock.holder.detached else ""


def cut(text: str, width: int) -> str:
    """Return a text that takes at most *width* columns of a terminal."""
    if display_width(text) <= width:
        return text
    room = max(0, width - len(CUT))
    end = min(room, len(text))
    while display_width(text[:end]) > room:
        end -= 1
    return text[:end] + CUT


def cut_middle(text: str, width: int) -> str:
    """The same with the beginning and the end: names that begin alike differ at the end."""
    if display_width(text) <= width:
        return text
    room = max(0, width - len(CUT))
    last = room // 2
    end, start = room - last, len(text) - last
    while display_width(text[:end]) > room - last:
        end -= 1
    while display_width(text[start:]) > last:
        start += 1
    return text[:end] + CUT + text[start:]


def _narrow(lock: LockInfo, width: int, paint: Paint, deadlocked: bool) -> list[str]:
    import textwrap

    parts = [UNREADABLE] if lock.unreadable else []
    parts += [f"{len(lock.waiters)} waiting{DEADLOCK * deadlocked}"]
    if (holder := lock.holder) is not None:
        left = [] if holder.remaining is None else [f"{_left(holder)} left"]
        label = [f"label {holder.label}"] if holder.label else []
        held = f"{_who(holder)} {time_held(holder)}{_others(lock)}"
        parts = [held, *left, *parts, f"token {_token(holder)}", *label]
    colour = _colour(lock, deadlocked) or BOLD
    name = textwrap.wrap(shown_name(lock.name), width, drop_whitespace=False)
    indent = "  "
    rest = textwrap.wrap(
        escape(", ".join(parts)), width, initial_indent=indent, subsequent_indent=indent * 2
    )
    return [*(paint(line, colour) for line in name), *rest]


def table_row(lock: LockInfo, deadlocked: bool = False) -> tuple[str, ...]:
    """Return a lock as a row of the table."""
    cells = {name: cell(lock) for name, cell in COLUMNS.items()}
    cells["WAITERS"] += DEADLOCK * deadlocked
    return tuple(cells.values())


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns."""
    cells = [[escape(cell) for cell in row] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    return [_align(row, widths) for row in cells]


def _align(row: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(row, widths, strict=True)
    padded = [cell + " " * (width - display_width(cell)) for cell, width in pairs]
    return SEPARATOR.join(padded).rstrip()


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.category(char) in ("Mn", "Me") for char in text)
