"""A release frees the lock of any holder (hazard A2)."""

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
        "if found == owner",
        "if found",
    )
    rewrite(
        patch,
        "RELEASE",
        "redis.pcall('HDEL', lock, owner, 'about:' .. owner)",
        "redis.call('DEL', lock)",
    )
