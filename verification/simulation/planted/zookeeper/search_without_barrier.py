"""The node of a lost request is searched for on a server that may lag (hazard I10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper import queue
from leaselock._backends.zookeeper.requests import Read

if TYPE_CHECKING:
    import pytest

STORY = "zookeeper ensemble"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(queue, "QuorumBarrier", Read)
