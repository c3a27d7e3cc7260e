"""A leader whose body can be interrupted resigns without waiting for the end of the body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.election import Term

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Term.resign

    async def resign(self: Term) -> bool:
        assert self.handle is not None
        self.handle.guard = None
        self.handle.hold.guards = ()
        return await real(self)

    patch.setattr(Term, "resign", resign)
