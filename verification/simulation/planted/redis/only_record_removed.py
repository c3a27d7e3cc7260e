"""A release removes the record but not the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "RELEASE",
        "redis.pcall('HDEL', lock, owner, 'about:' .. owner)",
        "redis.pcall('HDEL', lock, 'about:' .. owner)",
    )
