"""A lock gets no expiry (hazard A1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "ACQUIRE RELEASE BREAK_LOCK",
        "local done = redis.pcall('PEXPIRE', lock, lease)",
        "local done = 1",
    )
