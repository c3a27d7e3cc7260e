"""The validity of a grant is counted from its reply (hazard B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.mutex import Mutex

if TYPE_CHECKING:
    import pytest

    from leaselock.core.attempt import Acquisition
    from leaselock.core.backend import Busy, Grant


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Mutex._ask

    async def ask(self: Mutex, attempt: Acquisition, wait: bool) -> Grant | Busy:
        reply = await real(self, attempt, wait)
        attempt.asked = self.registry.env.now()
        return reply

    patch.setattr(Mutex, "_ask", ask)
