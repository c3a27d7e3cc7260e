"""A renewal is a read, which a server without its leader answers (hazard I1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper import session_backend
from leaselock.backends.zookeeper.requests import Read

if TYPE_CHECKING:
    import pytest

STORY = "zookeeper ensemble"
FIRST = 1450


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(session_backend, "QuorumBarrier", Read)
