"""A lock is handed over, and nobody wakes the one who got it (hazard E1)."""

from __future__ import annotations

import pytest

from holdfast.core.backend import Claim
from holdfast.core.table import Place


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    def wake(self: Place, claim: Claim) -> None:
        return None

    patch.setattr(Place, "wake", wake)
