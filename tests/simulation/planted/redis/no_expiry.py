"""A lock gets no expiry (hazard A1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "ACQUIRE RELEASE BREAK_LOCK",
        "    redis.call('PEXPIRE', lock, ms)\n"
        "    redis.call('HSET', lock, who, 1)\n"
        "    redis.call('PEXPIRE', lock, ms)",
        "    redis.call('HSET', lock, who, 1)",
    )
