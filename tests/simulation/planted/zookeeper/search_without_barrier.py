<<<<<<<< HEAD:tests/simulation/planted/zookeeper/searched_for_without_a_barrier.py
"""The node of a lost request is looked for on a server that may lag behind (hazard I10)."""
========
"""The node of a lost request is searched for on a server that may lag (hazard I10)."""
>>>>>>>> main:tests/simulation/planted/zookeeper/search_without_barrier.py

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper import queue
from leaselock.backends.zookeeper.requests import Read

if TYPE_CHECKING:
    import pytest

STORY = "zookeeper ensemble"
FIRST = 600


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(queue, "QuorumBarrier", Read)
