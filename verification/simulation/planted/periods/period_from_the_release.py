"""The period is counted from the release instead of the grant."""

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
        for hold in row.holds():
            if hold.id == request.claim.id and request.claim.min_hold:
                row.put(hold._replace(free_from=row.now + request.claim.min_hold))
        return real(row, request)

    patch.setattr(rules, "release", release)
