"""A listener's request that a release overtakes acquires the lock again (hazard D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import local_handoff
from leaselock._core.backend import Grant, Inspect

if TYPE_CHECKING:
    import pytest

    from leaselock._core.local_handoff import LocalHandoff, SharedLease


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def is_alone(local: LocalHandoff, lease: SharedLease) -> bool:
        until = local.env.now() + 1.0
        reply = await local.backend.acquire(lease.claim, wait=True, until=until)
        (state,) = await local.backend.request(Inspect(lease.claim.name, "*"), until)
        return isinstance(reply, Grant) and not state.waiting

    patch.setattr(local_handoff, "is_alone", is_alone)
