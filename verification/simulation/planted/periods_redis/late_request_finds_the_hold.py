"""What is left of a released hold keeps its owner, so that a late request touches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(patch, "COOL_DOWN", "owner .. ':released'", "owner")
