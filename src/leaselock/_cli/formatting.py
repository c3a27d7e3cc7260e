"""Durations as text, and text that is safe to print on a terminal."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leaselock import Holder, Waiter

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", re.ASCII)
NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+", re.ASCII)
MAIN_THREAD = "MainThread"
# As many combining marks follow a character on a terminal: more would cover the lines around it.
MOST_MARKS = 4


def parse_duration(text: str) -> float:
    """Return the seconds of ``500ms``, ``10s``, ``5m``, ``1h30m`` or a bare number of seconds.
    Blanks between the parts are allowed.
    """
    stripped = text.strip()
    if NUMBER.fullmatch(stripped):
        return float(stripped)
    if not stripped or QUANTITY.sub("", stripped):
        raise ValueError(
            f"{text!r} is not a duration such as 500ms, 10s, 5m, 1h30m or 2.5 (seconds)"
        )
    return sum(float(number) * UNITS[unit] for number, unit in QUANTITY.findall(stripped))


def format_duration(seconds: float) -> str:
    """Return a readable duration: 850ms, 12.3s, 4m05s, 3h20m, 2d06h."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    if seconds < 3600:
        return "{}m{:02d}s".format(*divmod(int(seconds), 60))
    if seconds < 86400:
        return "{}h{:02d}m".format(*divmod(int(seconds / 60), 60))
    return "{}d{:02d}h".format(*divmod(int(min(seconds, 1e15) / 3600), 24))


def format_time(moment: float) -> str:
    """Return a moment of Unix time as local time; with its date, unless that is today's."""
    try:
        there, today = time.localtime(moment), time.localtime()
    except (ValueError, OverflowError, OSError):  # of another program, perhaps
        return "unknown"
    date = "" if there[:3] == today[:3] else "%Y-%m-%d "
    return time.strftime(f"{date}%H:%M:%S", there)


def escape(text: str) -> str:
    """Escape unprintable characters, and combining marks beyond the first few of a character: text
    from a store must not control the terminal, fake a line of output, or cover other lines.
    """
    if text.isascii():
        return text if text.isprintable() else "".join(map(_escaped, text))
    import unicodedata  # loaded where it is used, for it takes its time

    parts, marks = [], 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char)[0] == "M" else 0
        parts.append(_escaped(char, hidden=marks > MOST_MARKS))
    return "".join(parts)


def _escaped(char: str, *, hidden: bool = False) -> str:
    if char.isprintable() and not hidden:
        return char
    return char.encode("unicode_escape").decode("ascii")


def short_name(holder: Holder | Waiter) -> str:
    """Return a holder or waiter as host:pid/thread, or as another program's description."""
    if not holder.pid:
        return holder.host
    thread = "" if holder.thread == MAIN_THREAD else f"/{holder.thread}"
    return f"{holder.host}:{holder.pid}{thread}"


def elapsed(person: Holder | Waiter) -> float | None:
    """Return for how many seconds it has held or waited: by the clock of the store, or of this
    machine where the store does not tell it. None if that is not known.
    """
    if person.age is not None:
        return person.age
    return max(0.0, time.time() - person.since) if person.since else None


def time_since(holder: Holder | Waiter) -> str:
    """The same as text."""
    seconds = elapsed(holder)
    return "unknown" if seconds is None else format_duration(seconds)


def time_held(holder: Holder | Waiter) -> str:
    """The same as a phrase."""
    return f"for {time_since(holder)}" if holder.since else "since unknown"


def describe(holder: Holder) -> str:
    """Return a holder with its label and how long it has held the lock."""
    return f"{holder} {time_held(holder)}"


def slots_of(person: Holder | Waiter) -> str:
    """The numbers of the permits that it holds, if they are numbered: after a comma."""
    slots: tuple[int, ...] = getattr(person, "slots", ())
    return f", slot {', '.join(map(str, slots))}" if slots else ""


def wanted(person: Holder | Waiter) -> str:
    """How it holds or wants a lock, if not exclusively: after a comma."""
    if person.mode == "exclusive":
        return ""
    if person.mode == "permits":
        return f", {person.permits} permit{'s' * (person.permits > 1)}{slots_of(person)}"
    return f", {person.mode}"
