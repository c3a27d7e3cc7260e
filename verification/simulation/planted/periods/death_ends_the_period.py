"""The death of the process that has run frees the lock before the period has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def outlives(row: rules.LockRow, hold: HoldRecord) -> bool:
        return hold.lifetime in ("lease", "cooling")

    patch.setattr(rules, "outlives", outlives)
