"""A waiter watches the first waiter, and not the nearest one that it conflicts with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from leaselock._core.backend import Acquire, Busy, Claim, HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules._enqueue

    def enqueue(
        row: rules.LockRow, request: Acquire, holds: Sequence[HoldRecord], blocker: Claim | None
    ) -> Busy:
        return real(row, request, holds, rules.first(row) if blocker is not None else None)

    patch.setattr(rules, "_enqueue", enqueue)
