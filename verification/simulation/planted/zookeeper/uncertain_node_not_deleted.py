"""A node whose creation was not confirmed is not searched for (hazard I2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.queue import QueueBackend

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    release = QueueBackend.release

    async def forgetful(self: QueueBackend, claim: Claim, *, tombstone: bool, until: float) -> bool:
        contender = self.contenders.get(claim.id)
        if contender is None or contender.node is None:
            return False
        return await release(self, claim, tombstone=False, until=until)

    patch.setattr(QueueBackend, "release", forgetful)
