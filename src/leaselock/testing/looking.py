"""Waiting for what other processes bring about, and what nothing tells of: by looking."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def until(condition: Callable[[], object], patience: float, pause: float = 0.01) -> bool:
    """Look every *pause* seconds; False when it is not so within *patience* seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() >= deadline:
            return False
        # Between two looks: nothing would wake us.
        time.sleep(pause)
    return True
