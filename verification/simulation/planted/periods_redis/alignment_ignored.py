"""Periods that are to be those of the clock begin with the grant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(patch, "ACQUIRE", "aligned == '1' and", "false and")
