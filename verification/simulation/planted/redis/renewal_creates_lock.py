"""A renewal recreates a hold that has ended (hazard A4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


FAULTS = {"slow": 0.02, "freeze": 0.05, "freeze_mean": 1.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "RENEW",
        "    found = redis.pcall('HGET', lock, owner)",
        "    redis.call('HSET', lock, owner, 1)\n"
        "    redis.call('PEXPIRE', lock, lease)\n"
        "    found = '1'",
    )
