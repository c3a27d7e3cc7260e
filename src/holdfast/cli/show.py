"""ls, show, version: what is held and who waits, as a table or as JSON."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast import Holder, Report, __version__
from holdfast.cli.store import client_of
from holdfast.cli.words import harmless, length

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

SCHEMA = 1
COLUMNS = ("NAME", "HOLDER", "SINCE", "TTL-LEFT", "FENCE", "WAITERS", "REASON")


def do_version(options: argparse.Namespace) -> int:
    """Print the version."""
    document = {"schema": SCHEMA, "version": __version__}
    print(json.dumps(document) if options.json else f"holdfast {__version__}")
    return 0


def do_ls(options: argparse.Namespace) -> int:
    """List locks."""
    with client_of(options) as client:
        reports = client.locks(options.pattern)
    if options.json:
        print(json.dumps({"schema": SCHEMA, "locks": [document(r) for r in reports]}))
    elif reports:
        print(table([COLUMNS, *(row(report) for report in reports)]))
    return 1 if options.exit_code and not reports else 0


def do_show(options: argparse.Namespace) -> int:
    """Show one lock."""
    with client_of(options) as client:
        lock = client.lock(options.name)
        report = Report(options.name, lock.holder(), tuple(lock.waiters()))
    if options.json:
        print(json.dumps({"schema": SCHEMA, "lock": document(report)}))
    else:
        print("\n".join(lines(report)))
    return 0


def document(report: Report) -> dict[str, object]:
    """A lock for programs: no words for people, times twice."""
    holder = None if report.holder is None else person(report.holder)
    waiters = [person(waiter) for waiter in report.waiters]
    return {"name": report.name, "holder": holder, "waiters": waiters}


def person(holder: Holder) -> dict[str, object]:
    """A holder or a waiter for programs."""
    moment = datetime.fromtimestamp(holder.since, UTC)
    return {
        "host": holder.host,
        "pid": holder.pid,
        "thread": holder.thread,
        "label": holder.label,
        "since": holder.since,
        "since_utc": moment.isoformat().replace("+00:00", "Z"),
        "token": holder.token,
        "remaining": holder.remaining,
    }


def row(report: Report) -> tuple[str, ...]:
    """A lock as a line of the table."""
    waiters = str(len(report.waiters))
    holder = report.holder
    if holder is None:
        return (report.name, "-", "-", "-", "-", waiters, "")
    left = "-" if holder.remaining is None else length(holder.remaining)
    ago = length(time.time() - holder.since)
    return (report.name, who(holder), ago, left, str(holder.token), waiters, reason(holder))


def who(holder: Holder) -> str:
    """host:pid/thread."""
    return harmless(f"{holder.host}:{holder.pid}/{holder.thread}")


def reason(holder: Holder) -> str:
    """What the holder wants it for."""
    return harmless(holder.label or "")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def lines(report: Report) -> list[str]:
    """One lock for people."""
    holder = report.holder
    if holder is None:
        shown = [f"{report.name}: free"]
    else:
        ago = length(time.time() - holder.since)
        shown = [f"{report.name}: held by {who(holder)} for {ago}, token {holder.token}"]
        shown += [f"  reason: {reason(holder)}"] if holder.label else []
        shown += [] if holder.remaining is None else [f"  lease: {length(holder.remaining)} left"]
    for place, waiter in enumerate(report.waiters, 1):
        shown.append(f"  {place}. {who(waiter)}, for {length(time.time() - waiter.since)}")
    return shown
