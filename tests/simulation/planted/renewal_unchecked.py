"""A renewal succeeds whoever holds the lock (hazard A4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def renew(shelf: rules.LockRow, claim: Claim) -> bool:
        held = shelf.held()
        if held is not None:
            shelf.keep(held._replace(expires=shelf.now + claim.lease))
        return True

    patch.setattr(rules, "renew", renew)
