"""The token is the transaction counter of a leader, without its epoch (hazard I5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.queue import QueueBackend
from leaselock._core.effects import FOREVER

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.zookeeper.contender import Contender
    from leaselock._core.backend import Grant

STORY = "zookeeper ensemble"
OF_ONE_LEADER = 2**32


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    grant = QueueBackend._grant

    async def short(self: QueueBackend, contender: Contender, proof: float = FOREVER) -> Grant:
        whole = await grant(self, contender, proof)
        return whole._replace(token=whole.token % OF_ONE_LEADER)

    patch.setattr(QueueBackend, "_grant", short)
