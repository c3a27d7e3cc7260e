"""A nested acquire is not counted, so the inner release frees the lock (hazard A7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.lease_handle import LeaseHandle

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = LeaseHandle._end

    def end(self: LeaseHandle) -> bool:
        # The outer release finds that nothing is counted any more, and frees the lock again.
        self.hold.modes[1:] = []
        self.hold.modes[:] = self.hold.modes or [self.mode]
        return real(self)

    patch.setattr(LeaseHandle, "_end", end)
