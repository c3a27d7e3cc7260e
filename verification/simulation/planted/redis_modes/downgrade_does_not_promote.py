"""The waiters are not granted what a downgrade allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "CONVERT",
        "local failed = promote(owner, false).wrong",
        "local failed = target == 'exclusive' and promote(owner, false).wrong",
    )
