"""The token is not stored before the grant; a clock that is set back repeats it."""

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
        "before = redis.pcall('SET', counter, last, 'PX', token_ttl, 'GET')",
        "before = redis.pcall('GET', counter)",
    )
