"""A renewal checks that the lock is held, but not its holder (hazard A4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


# The story that shows it.
STORY = "redis data loss"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "RENEW",
        "    found = redis.pcall('HGET', lock, owner)",
        "    found = redis.call('EXISTS', lock) == 1 and '1'",
    )
