"""Planted bugs of waits that are cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.plant import planted

from leaselock._core.mutex import Mutex

if TYPE_CHECKING:
    import pytest


@planted("cancelled waits")
def cancel_wakes_nobody(patch: pytest.MonkeyPatch) -> None:
    """A cancelled wait is not woken: it ends when its claim asks again by itself."""

    def cancel(mutex: Mutex) -> int:
        waiting = [wait for wait in mutex.waiting if not wait.cancelled]
        for wait in waiting:
            wait.cancelled = True
        return len(waiting)

    patch.setattr(Mutex, "cancel", cancel)
