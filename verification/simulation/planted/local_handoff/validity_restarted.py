"""A hand-off restarts the validity for the whole lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import local_handoff
from leaselock._core.backend import Grant

if TYPE_CHECKING:
    import pytest

    from leaselock._core.local_handoff import LocalWaiter, SharedLease

FAULTS = {"freeze": 0.05, "freeze_mean": 4.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def granted(waiter: LocalWaiter, lease: SharedLease, now: float) -> Grant:
        return Grant(waiter.token, ())

    patch.setattr(local_handoff, "granted", granted)
