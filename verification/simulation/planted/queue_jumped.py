"""A request for a free lock is granted although other clients wait (hazard E5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def promote(row: rules.LockRow) -> None:
        for claim in row.queue():
            row.notify(claim.id, claim.client)

    patch.setattr(rules, "promote", promote)
    patch.setattr(rules, "_passes", lambda ahead, claim: True)
