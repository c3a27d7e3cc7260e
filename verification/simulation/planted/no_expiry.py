"""Neither the death of its client nor time ends a hold (hazard A1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def over(row: rules.LockRow, held: HoldRecord) -> bool:
        return False

    patch.setattr(rules, "expired", over)
