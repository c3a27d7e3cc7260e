"""A proof is considered valid for more than the whole session timeout (hazard I1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import validity

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(validity, "PROVEN_PART", 1.2)
