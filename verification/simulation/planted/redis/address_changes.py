"""A claim that repeats its request takes over another kept subscription, and is queued twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.listener import Listener

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Listener.take_address

    def take_address(self: Listener, claim: Claim) -> str:
        if claim.id not in self.waiting:
            self.forget_address(claim)
        return real(self, claim)

    patch.setattr(Listener, "take_address", take_address)
