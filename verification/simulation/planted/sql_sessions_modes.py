"""Planted bugs of read/write locks on SQL whose holds end with a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.plant import planted
from verification.simulation.planted import sql_sessions
from verification.simulation.sql_server import Server

from leaselock._backends.sql.session_locks import SessionLocks

if TYPE_CHECKING:
    from typing import Any

    import pytest
    from verification.simulation.sql_server import Key
    from verification.simulation.sql_server import Session as ServerSession

    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.session_state import Session


@planted("sql sessions modes")
def downgrade_unlocks(patch: pytest.MonkeyPatch) -> None:
    """A writer that becomes a reader unlocks, and does not lock again."""

    async def weaken(self: SessionLocks, session: Session, own: Executor) -> None:
        await own.execute(("advisory release", ("mark alive", self.values(session))))

    patch.setattr(SessionLocks, "weaken", weaken)


@planted("sql sessions modes")
def writer_granted_beside_readers(patch: pytest.MonkeyPatch) -> None:
    """The server grants a lock to a writer although readers hold it."""

    def is_free(self: Server, session: ServerSession, key: Key, shared: bool) -> bool:
        return self.owners.get(key, session) is session

    patch.setattr(Server, "_is_free", is_free)


@planted("sql sessions modes")
def writer_locks_for_share(patch: pytest.MonkeyPatch) -> None:
    """A writer locks the row as a reader does."""
    real = SessionLocks.values

    def values(self: SessionLocks, session: Session) -> dict[str, Any]:
        return {**real(self, session), "mode": "shared"}

    patch.setattr(SessionLocks, "values", values)


@planted("sql sessions modes")
def lock_stays(patch: pytest.MonkeyPatch) -> None:
    """The server does not unlock what a reader or a writer unlocks."""
    sql_sessions.lock_stays(patch)
