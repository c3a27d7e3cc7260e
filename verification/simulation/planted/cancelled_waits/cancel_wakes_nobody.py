"""A cancelled wait is not woken: it ends when its claim asks again by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.mutex import Mutex

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def cancel(mutex: Mutex) -> int:
        waiting = [wait for wait in mutex.waiting if not wait.cancelled]
        for wait in waiting:
            wait.cancelled = True
        return len(waiting)

    patch.setattr(Mutex, "cancel", cancel)
