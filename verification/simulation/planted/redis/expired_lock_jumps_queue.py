"""An expired lock is granted to a new client, ahead of the waiters (hazard E5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "ACQUIRE",
        "local next_one = hand_over(owner)",
        "local next_one = owner",
    )
