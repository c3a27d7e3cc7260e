"""The validity of a grant is counted from its reply (hazard B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.core.acquisition import Acquisition

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Acquisition.until_answered

    async def until_answered(self: Acquisition, send: Callable[..., Any]) -> Any:
        reply = await real(self, send)
        self.asked = self.env.now()
        return reply

    patch.setattr(Acquisition, "until_answered", until_answered)
