"""A reader may become a writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import backend

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr("leaselock._core.mutex.STRENGTH", dict.fromkeys(backend.STRENGTH, 0))
