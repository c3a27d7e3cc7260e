"""A renewal checks that the lock is held, not by whom (hazard A4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


# The story that shows it.
STORY = "redis that forgets"
FIRST = 385


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "RENEW",
        "    ours = redis.pcall('HEXISTS', KEYS[i], owner)",
        "    ours = redis.call('EXISTS', KEYS[i])",
    )
