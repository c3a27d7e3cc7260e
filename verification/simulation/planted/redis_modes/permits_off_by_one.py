"""One permit more than the limit is granted."""

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
        "return used + claim.permits <= limit",
        "return used + claim.permits <= limit + 1",
    )
