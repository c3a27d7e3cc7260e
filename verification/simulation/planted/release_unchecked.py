"""A release frees the lock of any holder (hazard A2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Release, Released


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        for held in row.holds():
            if not row.quit(request.claim.id):
                row.remove(held.id)
                row.put(held._replace(id=request.claim.id))
        return real(row, request)

    patch.setattr(rules, "release", release)
