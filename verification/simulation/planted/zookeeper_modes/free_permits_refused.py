"""A try is refused free permits because another claim is before it in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends.zookeeper.semaphores import Semaphores

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.zookeeper.semaphores import View
    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Semaphores._fits

    async def fits(
        self: Semaphores, claim: Claim, path: str, view: View, place: Any, limit: int, until: float
    ) -> bool | None:
        return place.ahead is None and await real(self, claim, path, view, place, limit, until)

    patch.setattr(Semaphores, "_fits", fits)
