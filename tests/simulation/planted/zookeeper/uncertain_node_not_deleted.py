"""A node whose creation was not confirmed is not searched for (hazard I2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.queue import Queue

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    release = Queue.release

    async def forgetful(self: Queue, claim: Claim, *, tombstone: bool, until: float) -> bool:
        stay = self.stays.get(claim.id)
        if stay is None or stay.node is None:
            return False
        return await release(self, claim, tombstone=False, until=until)

    patch.setattr(Queue, "release", forgetful)
