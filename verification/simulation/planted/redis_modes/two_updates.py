"""Two updates hold at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import EVERY, rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        EVERY,
        "return claim.kind == 'shared' or not update and not ahead.update",
        "return true",
    )
