"""After a fork the child hands off the lease of its parent (hazard F6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.local_handoff import LocalHandoff

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def reset_identity(self: LocalHandoff) -> None:
        for waiter in self.waiters.values():
            if waiter.lease is not None:
                waiter.lease.holder = None
        self.backend.reset_identity()

    patch.setattr(LocalHandoff, "reset_identity", reset_identity)
