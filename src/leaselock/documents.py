"""Locks as JSON documents, of the command line and of the web page.

Durations are in seconds; points in time are given twice, as Unix time and as RFC 3339 in UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock import Holder
from leaselock.process_identity import is_stale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock import LockInfo, Waiter
    from leaselock._core.client.deadlocks import WaitEdge

# Within one version, fields are only added.
SCHEMA = 2
# The fields of a holder that are for programs on its host, and for metrics.
NOT_SHOWN = ("owner", "note", "process")


def lock_document(lock: LockInfo, *, deadlocked: bool = False) -> dict[str, object]:
    """Return a lock as a JSON document; *deadlocked* if it is part of a deadlock."""
    waiters = [holder_document(waiter) for waiter in lock.waiters]
    return {
        "name": lock.name,
        "holder": holder_document(lock.holder),
        "holders": [holder_document(holder) for holder in lock.holders],
        "permits": lock.permits or None,
        "waiters": waiters,
        "deadlocked": deadlocked,
        "unreadable": lock.unreadable,
    }


def holder_document(holder: Holder | Waiter | None) -> dict[str, object] | None:
    """Return a holder or a waiter as a JSON document."""
    if holder is None:
        return None
    since = holder.since or None  # 0.0 where the store does not know it
    # A waiter lacks some fields of a holder.
    document = {
        field: getattr(holder, field, Holder._field_defaults.get(field))
        for field in Holder._fields
        if field not in NOT_SHOWN
    }
    return document | {
        "since": since,
        "since_utc": None if since is None else utc_time(since),
        "gone": is_stale(holder) if isinstance(holder, Holder) else None,
    }


def utc_time(timestamp: float) -> str | None:
    """Return RFC 3339 in UTC; None if the timestamp is outside the calendar."""
    from datetime import UTC, datetime

    try:
        text = datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError, OSError):
        return None
    return text.replace("+00:00", "Z")


def deadlock_document(deadlock: Sequence[WaitEdge]) -> list[dict[str, object]]:
    """Return a deadlock as a JSON document: its waits."""
    return [
        {
            "name": wait.name,
            "waiter": holder_document(wait.waiter),
            "holder": holder_document(wait.holder),
        }
        for wait in deadlock
    ]
