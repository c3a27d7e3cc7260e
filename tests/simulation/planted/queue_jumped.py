"""A request for a free lock is granted although other clients wait (hazard E5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leaselock.core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock.backends.memory.store import MemoryRow
    from leaselock.core.backend import HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def hand_over(row: rules.LockRow) -> HoldRecord | None:
        for claim in list(cast("MemoryRow", row).entry.queue.values()):
            row.notify(claim)
        return None

    patch.setattr(rules, "grant_next", hand_over)
