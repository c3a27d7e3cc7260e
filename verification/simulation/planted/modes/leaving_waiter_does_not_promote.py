"""A waiter that leaves the queue does not let in those behind it."""

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
        if row.quit(request.claim.id):
            return Released("waiting", ())
        return real(row, request)

    patch.setattr(rules, "release", release)
