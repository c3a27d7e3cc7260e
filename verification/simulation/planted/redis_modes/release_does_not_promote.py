"""The release of a reader grants nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(patch, "RELEASE_SHARED", "if was > 0 then", "if was == 2 then")
