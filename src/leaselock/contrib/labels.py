"""The labels of metrics, the same for each system of metrics."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# The kinds of events that end an acquire, and the outcome that they stand for.
OUTCOMES = {
    "granted": "acquired",
    "timed_out": "timeout",
    "failed": "error",
    "cancelled": "cancelled",
}
# At most this many values of the label `lock`; further ones are counted as OTHERS.
MOST_LABELS = 200
OTHERS = "(others)"
# In characters.
LONGEST_LABEL = 100
# Seconds after which a value that was not used makes room for others.
IDLE = 3600.0


def family(name: str) -> str:
    """The part of a lock's name before its first colon: "order" for "order:5". One series for each
    name would be too many.
    """
    return name.partition(":")[0]


def printable(text: str) -> str:
    """*text* with at most LONGEST_LABEL characters, all of which can be printed. The exposition
    format escapes line breaks only, and an unpaired surrogate would make every scrape fail.
    """
    if len(text) > LONGEST_LABEL:
        text = f"{text[: LONGEST_LABEL - 1]}…"
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _nothing(_: str) -> None:
    """The default of what is done when a label begins or ends."""


class Labels:
    """The values of the label `lock` that are in use, a bounded number of them.

    *begin* is called with each new value, and *end* with each that was not used for *idle* seconds.
    """

    def __init__(
        self,
        *,
        begin: Callable[[str], None] = _nothing,
        end: Callable[[str], None] = _nothing,
        idle: float = IDLE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._begin = begin
        self._end = end
        self._idle = idle
        self._clock = clock
        # When each value was used last, the longest unused one first.
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()

    def use(self, text: str) -> str:
        """The value of the label for *text*: itself, printable, or OTHERS if there are too many."""
        label = printable(text)
        with self._lock:
            now = self._clock()
            self._expire(now)
            known = self._used.pop(label, None) is not None
            if not known and len(self._used) >= MOST_LABELS:
                label = OTHERS
                known = self._used.pop(label, None) is not None
            self._used[label] = now
            if not known:
                self._begin(label)
        return label

    def all(self) -> list[str]:
        """The values that are in use."""
        with self._lock:
            self._expire(self._clock())
            return sorted(self._used)

    def _expire(self, now: float) -> None:
        while self._used:
            label = next(iter(self._used))
            if now - self._used[label] < self._idle:
                return
            del self._used[label]
            self._end(label)
