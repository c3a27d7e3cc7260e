"""A leader does not record its term, so another thread cannot resign for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.election import Term

if TYPE_CHECKING:
    import pytest

    from leaselock._core.lease_handle import LeaseHandle


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Term.begin

    async def begin(self: Term) -> LeaseHandle:
        handle = await real(self)
        self.candidacy.term = None
        return handle

    patch.setattr(Term, "begin", begin)
