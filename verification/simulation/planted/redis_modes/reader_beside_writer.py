"""A reader is granted beside a writer."""

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
        "if mode and mode ~= 'shared' or upgrading or ahead.closed then",
        "if upgrading or ahead.closed then",
    )
