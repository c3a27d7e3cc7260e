"""A waiter that gives up stays in the queue (hazard E6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import rules
from leaselock.core.backend import Release, Released

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.release

    def release(shelf: rules.LockRow, request: Release) -> Released:
        held = shelf.held()
        if held is None or held.id != request.claim.id:
            return Released("waiting", ())
        return real(shelf, request)

    patch.setattr(rules, "release", release)
