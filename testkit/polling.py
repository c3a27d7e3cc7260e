"""Polling for what other processes do and no notification reports."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def poll_until(condition: Callable[[], object], timeout: float, interval: float = 0.01) -> bool:
    """Test *condition* every *interval* seconds; return False if *timeout* passes first."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        # The interval between two tests; no event reports the change.
        time.sleep(interval)
    return True
