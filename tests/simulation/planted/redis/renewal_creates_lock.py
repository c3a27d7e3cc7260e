"""A renewal recreates a hold that has ended (hazard A4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


# Not long before the first seed that finds it, which takes its time.
FIRST = 150


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "RENEW",
        "    ours = redis.pcall('HEXISTS', KEYS[i], owner)",
        "    redis.call('HSET', KEYS[i], owner, 1)\n"
        "    redis.call('PEXPIRE', KEYS[i], lease)\n"
        "    ours = 1",
    )
