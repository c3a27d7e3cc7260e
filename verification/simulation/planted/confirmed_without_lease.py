"""A hand-off is confirmed without extending the grant to the whole lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules
from leaselock._core.backend import Acquire, Busy, Grant, Mismatch

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.acquire

    def acquire(row: rules.LockRow, request: Acquire) -> Grant | Busy | Mismatch:
        held = rules.find(row, request.claim.id)
        if held is not None:
            return Grant(held.token, row.notified())
        return real(row, request)

    patch.setattr(rules, "acquire", acquire)
