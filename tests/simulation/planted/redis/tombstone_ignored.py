"""A cancelled claim is granted by a late request (hazard D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "ACQUIRE",
        "elseif redis.call('EXISTS', KEYS[5]) == 1 then",
        "elseif false then",
    )
    rewrite(
        patch,
        "ACQUIRE",
        "if held and there > (last[1] and 2 or 1) then return {-1} end",
        "",
    )
