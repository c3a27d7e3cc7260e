"""The labels of metrics, the same for each system of metrics."""

from __future__ import annotations

# The kinds of events that end an acquire, and the outcome that they stand for.
OUTCOMES = {
    "granted": "acquired",
    "timed_out": "timeout",
    "failed": "error",
    "unlocked": "unlocked",
    "cancelled": "cancelled",
}


def family(name: str) -> str:
    """The part of a lock's name before its first colon: "order" for "order:5". One series for each
    name would be too many.
    """
    return name.partition(":")[0]
