"""The Redis script does not reserve the tokens of a grant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


STORY = "local handoff redis"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "ACQUIRE RELEASE",
        "string.format('%.0f', first + tokens - 1)",
        "string.format('%.0f', first)",
    )
