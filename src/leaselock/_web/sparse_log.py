"""Warnings that other machines can cause, at a bounded rate."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds between two warnings of one kind.
PAUSE = 10.0

logger = logging.getLogger("leaselock.web")


class SparseLog:
    """One kind of warning. The first one is logged at once; those within PAUSE seconds after a
    logged one are counted, and the next one says how many there were.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = float("-inf")
        self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        """Log or count one warning."""
        now = self._clock()
        if now < self._next:
            self._left_out += 1
            return
        if self._left_out:
            text, values = f"{text} (and %d times before)", (*values, self._left_out)
        self._next, self._left_out = now + PAUSE, 0
        logger.warning(text, *values)
