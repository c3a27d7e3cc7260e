"""No tombstone is written for a cancelled claim (hazard D2)."""

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
        "if ARGV[3] ~= '0' then redis.call('SET', KEYS[5], '', 'PX', ARGV[3]) end",
        "",
    )
