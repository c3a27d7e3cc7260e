"""A renewal sets the end of the lease to half its length from now (hazard C8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def renew(row: rules.LockRow, claim: Claim) -> bool:
        held = rules.find(row, claim.id)
        if held is None:
            return False
        row.put(held._replace(expires=row.now + claim.lease / 2))
        return True

    patch.setattr(rules, "renew", renew)
