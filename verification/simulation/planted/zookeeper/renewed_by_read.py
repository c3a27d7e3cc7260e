"""A renewal is a read, which a server without its leader answers (hazard I1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation import zoo

from leaselock._backends.zookeeper import session_backend
from leaselock._backends.zookeeper.requests import Read

if TYPE_CHECKING:
    import pytest

STORY = "zookeeper ensemble"
# No story is calm.
FAULTS = {"freeze": 0.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in, and let followers be without the leader for longer, but be up to date."""
    patch.setattr(zoo, "AWAY", 15.0)
    patch.setattr(zoo, "UNREST", (0.5,))
    patch.setattr(zoo, "LAGS", (0.001,))
    patch.setattr(zoo, "LOSSES", (0.0,))
    patch.setattr(session_backend, "QuorumBarrier", Read)
