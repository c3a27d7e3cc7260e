"""A hand-off repeats the token of the previous grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leaselock.core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock.backends.memory.store import MemoryRow
    from leaselock.core.backend import HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.grant_next

    def hand_over(row: rules.LockRow) -> HoldRecord | None:
        entry = cast("MemoryRow", row).entry
        before = entry.token
        held = real(row)
        if held is not None:
            held = held._replace(token=before)
            entry.held, entry.token = held, before
        return held

    patch.setattr(rules, "grant_next", hand_over)
