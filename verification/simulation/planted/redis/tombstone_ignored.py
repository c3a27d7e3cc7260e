"""A cancelled claim is granted by a late request (hazard D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(patch, "ACQUIRE", "there >= 4", "false")
