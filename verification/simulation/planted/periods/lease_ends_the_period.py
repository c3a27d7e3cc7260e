"""The end of the lease frees the lock before the period has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim, HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.confirmed

    def confirmed(row: rules.LockRow, hold: HoldRecord, claim: Claim) -> HoldRecord:
        expires = max(hold.expires, row.now + claim.lease)
        return real(row, hold, claim)._replace(expires=expires)

    patch.setattr(rules, "confirmed", confirmed)
