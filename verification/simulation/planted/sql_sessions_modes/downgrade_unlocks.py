"""A writer that becomes a reader unlocks, and does not lock again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.session_locks import SessionLocks

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.session_locks import Session


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def weaken(self: SessionLocks, session: Session, own: Executor) -> None:
        await own.execute(("advisory release", ("mark alive", self.values(session))))

    patch.setattr(SessionLocks, "weaken", weaken)
