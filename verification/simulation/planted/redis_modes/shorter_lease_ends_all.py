"""A hold with a shorter lease shortens those of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import EVERY, rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(patch, EVERY, "if redis.call('PTTL', lock) >= ms then return 1 end", "")
