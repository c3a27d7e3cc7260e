"""A server that is lost between the grant and the note of its period counts as a refusal, so that
the lock is not released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.redis.scripted_lock import ScriptedLock
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = ScriptedLock._keep_taken

    async def keep_taken(self: ScriptedLock, claim: Claim, until: float) -> bool:
        try:
            return await real(self, claim, until)
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, NotApplied):
                raise error.__cause__ from None
            raise

    patch.setattr(ScriptedLock, "_keep_taken", keep_taken)
