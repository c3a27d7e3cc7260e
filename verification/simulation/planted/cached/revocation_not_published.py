"""The script does not notify the client that caches the lease of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


STORY = "cached redis"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "ACQUIRE",
        "if who then tell(channels .. place, who) end",
        "",
    )
