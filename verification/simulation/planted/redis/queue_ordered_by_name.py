"""The queue is ordered by names instead of tickets (hazard E5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "ACQUIRE",
        "redis.call('ZADD', queue, 'NX', ticket, member)",
        "redis.call('ZADD', queue, 'NX', 0, member)",
    )
