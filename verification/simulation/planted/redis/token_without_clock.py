"""The token is the counter alone, which starts again when it has expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    scripts = "ACQUIRE RELEASE BREAK_LOCK"
    rewrite(patch, scripts, "local first, before, wrong = now,", "local first, before, wrong = 1,")
    rewrite(patch, scripts, "form == 'vote' or first > now then", "before then")
