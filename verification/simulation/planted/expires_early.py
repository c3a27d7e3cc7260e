"""The store ends a lease after half of its duration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.expired

    def over(row: rules.LockRow, held: HoldRecord) -> bool:
        lease = 1.0
        return real(row, held) or held.expires - lease / 2 <= row.now

    patch.setattr(rules, "expired", over)
