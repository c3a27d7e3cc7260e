"""A renewal succeeds for any claim (hazard A4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def renew(row: rules.LockRow, claim: Claim) -> bool:
        for held in row.holds():
            row.put(held._replace(expires=row.now + claim.lease))
        return True

    patch.setattr(rules, "renew", renew)
