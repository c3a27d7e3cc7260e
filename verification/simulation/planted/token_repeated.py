"""A hand-off repeats the token of the previous grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.memory.store import MemoryRow
    from leaselock._core.backend import Claim, HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.grant

    def grant(
        row: rules.LockRow, claim: Claim, lasts: float, *, offered: bool = False
    ) -> HoldRecord:
        entry = cast("MemoryRow", row).entry
        before = entry.token
        held = real(row, claim, lasts, offered=offered)
        if offered:
            held = held._replace(token=before)
            row.put(held)
            entry.token = before
        return held

    patch.setattr(rules, "grant", grant)
