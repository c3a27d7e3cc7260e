"""A release frees the lock and ignores the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "RELEASE",
        "if about and not left_to_redisson(about) and not hand_over('') then",
        "if false then",
    )
