"""A writer that gives up leaves the readers behind it waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(patch, "RELEASE", "if mode == 'shared' then", "if mode == 'never' then")
