"""ls, show, version: holders and waiters as a table or as JSON.

The JSON documents have a schema version. Within one version, fields are only added. Durations are
in seconds; points in time are given twice, as Unix time and as RFC 3339 in UTC.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from leaselock import Holder, LockInfo, Waiter, __version__
from leaselock.cli import exit_codes
from leaselock.cli.formatting import escape, format_duration, short_name, time_since
from leaselock.cli.store import open_client

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

SCHEMA = 1
COLUMNS = ("NAME", "HOLDER", "SINCE", "TTL-LEFT", "FENCE", "WAITERS", "REASON")
NOTHING = "-"


def do_version(options: argparse.Namespace) -> int:
    """Print the version."""
    document = {"schema": SCHEMA, "version": __version__}
    print(json.dumps(document) if options.json else f"leaselock {__version__}")
    return 0


def do_ls(options: argparse.Namespace) -> int:
    """List locks."""
    with open_client(options) as client:
        locks = client.locks(options.pattern)
    if options.json:
        print(json.dumps({"schema": SCHEMA, "locks": [lock_document(lock) for lock in locks]}))
    elif locks:
        print(table([COLUMNS, *(table_row(lock) for lock in locks)]))
    return exit_codes.UNMET if options.exit_code and not locks else 0


def do_show(options: argparse.Namespace) -> int:
    """Show one lock."""
    with open_client(options) as client:
        name = client.lock(options.name).name
        # List by pattern instead of asking the lock: the list reads the holder and the waiters
        # at the same moment.
        locks = client.locks(re.sub(r"([*?[])", r"[\1]", name))
    lock = locks[0] if locks else LockInfo(name, None, ())
    if options.json:
        print(json.dumps({"schema": SCHEMA, "lock": lock_document(lock)}))
    else:
        print("\n".join(lock_lines(lock)))
    return 0


def lock_document(lock: LockInfo) -> dict[str, object]:
    """Return a lock as a JSON document."""
    holder = None if lock.holder is None else holder_document(lock.holder)
    waiters = [holder_document(waiter) for waiter in lock.waiters]
    return {"name": lock.name, "holder": holder, "waiters": waiters}


def holder_document(holder: Holder | Waiter) -> dict[str, object]:
    """Return a holder or a waiter as a JSON document."""
    return {
        "host": holder.host,
        "pid": holder.pid,
        "thread": holder.thread,
        "label": holder.label,
        "since": holder.since,
        "since_utc": utc_time(holder.since),
        "token": getattr(holder, "token", None),
        "remaining": getattr(holder, "remaining", None),
        "version": holder.version,
    }


def utc_time(timestamp: float) -> str | None:
    """Return RFC 3339 in UTC; None if the timestamp is outside the calendar."""
    from datetime import UTC, datetime

    try:
        text = datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError, OSError):
        return None
    return text.replace("+00:00", "Z")


def table_row(lock: LockInfo) -> tuple[str, ...]:
    """Return a lock as a row of the table."""
    waiters = str(len(lock.waiters))
    holder = lock.holder
    if holder is None:
        return (lock.name, *[NOTHING] * 4, waiters, "")
    left = NOTHING if holder.remaining is None else format_duration(holder.remaining)
    since, token = time_since(holder), str(holder.token)
    return (lock.name, short_name(holder), since, left, token, waiters, holder.label or "")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows with aligned columns."""
    cells = [[escape(cell) for cell in row] for row in rows]
    widths = [max(_display_width(row[i]) for row in cells) for i in range(len(COLUMNS))]
    return "\n".join(_align(row, widths) for row in cells)


def _align(row: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(row, widths, strict=True)
    padded = [cell + " " * (width - _display_width(cell)) for cell, width in pairs]
    return "  ".join(padded).rstrip()


def _display_width(text: str) -> int:
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def lock_lines(lock: LockInfo) -> list[str]:
    """Return one lock as lines of text."""
    holder = lock.holder
    lines = [f"{lock.name}: free"] if holder is None else _holder_lines(lock.name, holder)
    for place, waiter in enumerate(lock.waiters, 1):
        label = f" ({waiter.label})" if waiter.label else ""
        lines.append(f"  {place}. {short_name(waiter)}{label}, waiting for {time_since(waiter)}")
    return [escape(line) for line in lines]


def _holder_lines(name: str, holder: Holder) -> list[str]:
    held_for = time_since(holder)
    lines = [f"{name}: held by {short_name(holder)} for {held_for}, token {holder.token}"]
    if holder.label:
        lines.append(f"  reason: {holder.label}")
    if holder.remaining is not None:
        lines.append(f"  the lease has {format_duration(holder.remaining)} left")
    return lines
