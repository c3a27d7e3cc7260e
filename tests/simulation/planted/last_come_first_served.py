"""The last to come is served first (hazard E5)."""

from __future__ import annotations

import pytest

from holdfast.core.backend import Claim
from holdfast.core.table import Place


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    def first(self: Place) -> Claim | None:
        return next(reversed(self.entry.queue.values()), None)

    patch.setattr(Place, "first", first)
