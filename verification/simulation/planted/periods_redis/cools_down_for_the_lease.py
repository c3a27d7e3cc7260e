"""A lock cools down until the end of the lease instead of the period."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(patch, "COOL_DOWN", "redis.call('PEXPIRE', lock, string.format('%.0f', left))", "")
