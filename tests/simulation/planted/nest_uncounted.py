"""A nested acquire is not counted, so the inner release frees the lock (hazard A7)."""

from __future__ import annotations

import pytest

from holdfast.core.lease import Hold
from holdfast.core.mutex import Mutex


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    def nest(self: Mutex, hold: Hold) -> None:
        hold.check(self.books.env.now())

    patch.setattr(Mutex, "_nest", nest)
