"""A request without a reply counts as a refusal (hazard D1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.core.acquisition import Acquisition
from leaselock.core.backend import Busy
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def until_answered(self: Acquisition, send: Callable[..., Any]) -> Any:
        self.asked = self.env.now()
        try:
            return await send(until=self.asked + 0.2)
        except OutcomeUnknown:
            self.deadline = self.asked
            return Busy(None, 1.0, ())

    patch.setattr(Acquisition, "until_answered", until_answered)
