"""A renewal that arrives after a downgrade extends the lock, but not the hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(patch, "RENEW", "if ends and ends > 1 then", "if false then")
