"""The claim of a dead client goes on blocking those behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(rules, "waiting", lambda row, claims: iter(list(claims)))
