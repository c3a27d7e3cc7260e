"""A leader that resigns releases the lock, but its body may still act on the lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.election import Term

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def resign(self: Term) -> bool:
        handle = self.handle
        assert handle is not None
        registry = handle.registry
        until = registry.env.now() + registry.op_timeout
        return await registry.backend.release(handle.hold.claim, tombstone=False, until=until)

    patch.setattr(Term, "resign", resign)
