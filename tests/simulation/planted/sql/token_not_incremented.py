"""A hand-off does not increment the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.sql.shelf import LockShelf

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Claim, HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    grant = LockShelf.grant

    def careless(self: LockShelf, claim: Claim, expires: float) -> HoldRecord:
        before = self.token
        held = grant(self, claim, expires)._replace(token=before)
        self.token = before
        self.save(held)
        return held

    patch.setattr(LockShelf, "grant", careless)
