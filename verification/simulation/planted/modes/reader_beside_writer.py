"""A reader is granted beside a writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import backend, rules

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setitem(backend.BESIDE, "shared", backend.BESIDE["shared"] | {"exclusive"})
    patch.setattr(rules, "CLOSED", frozenset({"upgrading"}))
