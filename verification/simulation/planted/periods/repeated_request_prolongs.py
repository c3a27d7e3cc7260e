"""A request that is repeated after a lost reply begins the period anew."""

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
        return real(row, hold._replace(free_from=0.0), claim)

    patch.setattr(rules, "confirmed", confirmed)
