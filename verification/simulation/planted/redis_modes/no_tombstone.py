"""A late request of a released claim is granted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch, "ACQUIRE_SHARED", "if redis.call('EXISTS', KEYS[5]) == 1 then return {-1} end", ""
    )
