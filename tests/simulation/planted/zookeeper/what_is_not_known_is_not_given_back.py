"""A node whose creation was not answered is not looked for (hazard I2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.queue import Queue

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    leave = Queue.leave

    async def forgetful(self: Queue, claim: Claim, *, bury: bool, until: float) -> bool:
        stay = self.stays.get(claim.holder)
        if stay is None or stay.node is None:
            return False
        return await leave(self, claim, bury=False, until=until)

    patch.setattr(Queue, "leave", forgetful)
