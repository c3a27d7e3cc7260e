"""The release of one reader ends all holds."""

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
        if rules.find(row, request.claim.id) is not None:
            for hold in row.holds():
                if hold.id != request.claim.id:
                    row.remove(hold.id)
        return real(row, request)

    patch.setattr(rules, "release", release)
