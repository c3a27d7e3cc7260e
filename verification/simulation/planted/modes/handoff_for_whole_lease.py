"""A waiter is granted the lock for its whole lease, before it has confirmed that it is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    from typing import Any

    import pytest

    from leaselock._core.backend import Claim, HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.grant

    def grant(row: rules.LockRow, claim: Claim, lasts: float, **offered: Any) -> HoldRecord:
        return real(row, claim, claim.lease, **offered)

    patch.setattr(rules, "grant", grant)
