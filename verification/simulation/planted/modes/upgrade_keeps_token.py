"""A completed upgrade keeps its token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.promote

    def promote(row: rules.LockRow) -> None:
        holds = row.holds()
        if len(holds) == 1 and holds[0].mode == "upgrading":
            row.put(holds[0]._replace(mode="exclusive"))
        real(row)

    patch.setattr(rules, "promote", promote)
