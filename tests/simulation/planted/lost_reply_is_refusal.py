"""A request without a reply counts as a refusal (hazard D1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.backend import Busy, Grant
from leaselock.core.mutex import Mutex
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    import pytest

    from leaselock.core.attempt import Acquisition


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def ask(self: Mutex, attempt: Acquisition, wait: bool) -> Grant | Busy:
        attempt.asked = self.registry.env.now()
        try:
            until = attempt.asked + 0.2
            return await self.registry.backend.acquire(attempt.claim, wait=wait, until=until)
        except OutcomeUnknown:
            attempt.deadline = attempt.asked
            return Busy(None, 1.0, ())

    patch.setattr(Mutex, "_ask", ask)
