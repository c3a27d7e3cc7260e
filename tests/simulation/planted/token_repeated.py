"""A hand-off repeats the token of the previous grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leaselock.core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import HoldRecord
    from leaselock.core.table import MemoryRow


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.grant_next

    def hand_over(shelf: rules.LockRow) -> HoldRecord | None:
        entry = cast("MemoryRow", shelf).entry
        before = entry.token
        held = real(shelf)
        if held is not None:
            held = held._replace(token=before)
            entry.held, entry.token = held, before
        return held

    patch.setattr(rules, "grant_next", hand_over)
