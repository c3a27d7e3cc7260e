"""A hold is considered valid for longer than the server keeps an idle session (hazard B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import validity

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(validity, "PROVEN_PART", 5 * validity.PROVEN_PART)
