"""An upgrade waits until the queue is empty, which waits for it."""

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
        if not (len(holds) == 1 and holds[0].mode == "upgrading" and row.has_queue()):
            real(row)

    patch.setattr(rules, "promote", promote)
