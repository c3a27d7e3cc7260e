"""A release frees the lock whoever holds it (hazard A2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "RELEASE",
        "if holds(ARGV[1]) and meant() then",
        "if holder() then",
    )
