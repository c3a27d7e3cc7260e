"""ls, show, version: what is held and who waits, as a table or as JSON.

The JSON has a version. Within one, fields are only added; times are seconds, and moments are
told twice: as Unix time and as RFC 3339 in UTC.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from leaselock import Holder, LockInfo, __version__
from leaselock.cli import codes
from leaselock.cli.store import client_of
from leaselock.cli.voice import since, who
from leaselock.cli.words import harmless, length

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
    with client_of(options) as client:
        reports = client.locks(options.pattern)
    if options.json:
        print(json.dumps({"schema": SCHEMA, "locks": [document(r) for r in reports]}))
    elif reports:
        print(table([COLUMNS, *(row(report) for report in reports)]))
    return codes.UNMET if options.exit_code and not reports else 0


def do_show(options: argparse.Namespace) -> int:
    """Show one lock."""
    with client_of(options) as client:
        name = client.lock(options.name).name
        # By the list, not by the lock: there its holder and its waiters are of one moment.
        reports = client.locks(re.sub(r"([*?[])", r"[\1]", name))
    report = reports[0] if reports else LockInfo(name, None, ())
    if options.json:
        print(json.dumps({"schema": SCHEMA, "lock": document(report)}))
    else:
        print("\n".join(lines(report)))
    return 0


def document(report: LockInfo) -> dict[str, object]:
    """A lock for programs."""
    holder = None if report.holder is None else person(report.holder)
    waiters = [person(waiter) for waiter in report.waiters]
    return {"name": report.name, "holder": holder, "waiters": waiters}


def person(holder: Holder) -> dict[str, object]:
    """A holder or a waiter for programs."""
    return {
        "host": holder.host,
        "pid": holder.pid,
        "thread": holder.thread,
        "label": holder.label,
        "since": holder.since,
        "since_utc": moment(holder.since),
        "token": holder.token,
        "remaining": holder.remaining,
        "version": holder.version,
    }


def moment(since: float) -> str | None:
    """RFC 3339 in UTC; None for what no calendar has, whoever wrote it."""
    from datetime import UTC, datetime

    try:
        text = datetime.fromtimestamp(since, UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError, OSError):
        return None
    return text.replace("+00:00", "Z")


def row(report: LockInfo) -> tuple[str, ...]:
    """A lock as a line of the table."""
    waiters = str(len(report.waiters))
    holder = report.holder
    if holder is None:
        return (report.name, *[NOTHING] * 4, waiters, "")
    left = NOTHING if holder.remaining is None else length(holder.remaining)
    fence = str(holder.token)
    return (report.name, who(holder), since(holder), left, fence, waiters, holder.label or "")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be."""
    cells = [[harmless(cell) for cell in row] for row in rows]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(COLUMNS))]
    return "\n".join(_aligned(row, widths) for row in cells)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (wide - _width(cell)) for cell, wide in zip(row, widths, strict=True)]
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def lines(report: LockInfo) -> list[str]:
    """One lock for people."""
    holder = report.holder
    shown = [f"{report.name}: free"] if holder is None else _held(report.name, holder)
    for place, waiter in enumerate(report.waiters, 1):
        why = f" ({waiter.label})" if waiter.label else ""
        shown.append(f"  {place}. {who(waiter)}{why}, waiting for {since(waiter)}")
    return [harmless(line) for line in shown]


def _held(name: str, holder: Holder) -> list[str]:
    shown = [f"{name}: held by {who(holder)} for {since(holder)}, token {holder.token}"]
    if holder.label:
        shown.append(f"  reason: {holder.label}")
    if holder.remaining is not None:
        shown.append(f"  the lease has {length(holder.remaining)} left")
    return shown
