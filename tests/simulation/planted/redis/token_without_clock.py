"""The token is the counter alone, which starts again when it has expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "ACQUIRE RELEASE BREAK_LOCK",
        "local first, before = now, nil",
        "local first, before = 1, nil",
    )
