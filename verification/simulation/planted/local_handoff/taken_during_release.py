"""A lease can be taken while it is being released to the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.local_handoff import LocalHandoff

if TYPE_CHECKING:
    import pytest

    from leaselock._core.local_handoff import LocalQueue, SharedLease


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def release_lease(
        self: LocalHandoff, queue: LocalQueue, lease: SharedLease, until: float
    ) -> bool:
        lease.holder, lease.handoff_until = None, until
        tombstone = lease.may_be_in_flight()
        held = await self.backend.release(lease.claim, tombstone=tombstone, until=until)
        queue.lease = None
        queue.wake_first()
        return held

    patch.setattr(LocalHandoff, "release_lease", release_lease)
