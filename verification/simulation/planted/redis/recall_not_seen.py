"""A new claim does not see that all waiters were recalled, and is granted before they are back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(patch, "ACQUIRE", "'EXISTS', lock, queue, handoff,", "'EXISTS', lock, queue,")
