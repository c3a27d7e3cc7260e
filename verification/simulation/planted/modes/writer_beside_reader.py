"""A writer is granted beside readers and updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import backend

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setitem(backend.BESIDE, "exclusive", backend.BESIDE["exclusive"] | {"shared", "update"})
