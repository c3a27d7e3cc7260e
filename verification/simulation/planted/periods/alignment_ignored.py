"""Periods that are to be those of the clock begin with the grant."""

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
        return real(row, hold, claim._replace(aligned=False))

    patch.setattr(rules, "confirmed", confirmed)
