"""A watcher raises the error of a server that refuses connections while it restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.timing import Retry

if TYPE_CHECKING:
    import pytest

# Only partitions, restarts and broken connections.
FAULTS = {"freeze": 0.0, "slow": 0.0, "lost_request": 0.0, "lost_reply": 0.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    final = property(lambda retry: True, lambda retry, final: None)
    patch.setattr(Retry, "refusals_are_final", final)
