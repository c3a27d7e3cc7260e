"""A completed upgrade keeps the token of the update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import EVERY, rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(patch, EVERY, "step_of(about), token)", "step_of(about))")
