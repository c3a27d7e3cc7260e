"""A hold is believed for longer than the server lets a silent session last (hazard B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import validity

if TYPE_CHECKING:
    import pytest

STORY = "sql sessions"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(validity, "PROVEN_PART", 5 * validity.PROVEN_PART)
