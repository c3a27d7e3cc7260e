"""That the lock is held is taken for being its holder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "ACQUIRE",
        "if holds(owner) then",
        "if holder() then",
    )
