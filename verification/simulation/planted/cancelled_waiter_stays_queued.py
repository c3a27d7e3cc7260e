"""A waiter whose time has passed stays in the queue (hazard E6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules
from leaselock._core.backend import Release, Released

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        if rules.find(row, request.claim.id) is None:
            return Released("waiting", ())
        return real(row, request)

    patch.setattr(rules, "release", release)
