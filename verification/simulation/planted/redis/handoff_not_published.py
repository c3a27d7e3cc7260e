"""A hand-off publishes no message (hazard E1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "ACQUIRE RELEASE BREAK_LOCK",
        "if tell(channels .. address, news) > 0 then",
        "if true then",
    )
