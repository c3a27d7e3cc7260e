"""Planted bugs of the SQL protocols whose holds end with a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.plant import planted
from verification.simulation.sql_server import Server

from leaselock._backends.sql.session_locks import SessionLocks
from leaselock._core.client import validity

if TYPE_CHECKING:
    from typing import Any

    import pytest
    from verification.simulation.sql_server import Key, Session

    from leaselock._backends.sql.executor import Executor


@planted("sql sessions")
def lock_of_another_session(patch: pytest.MonkeyPatch) -> None:
    """The server grants a lock that another session holds."""
    patch.setattr(Server, "_is_free", lambda self, session, key, shared: True)


@planted("sql sessions")
def row_not_locked(patch: pytest.MonkeyPatch) -> None:
    """A row counts as locked although no statement locked it."""

    async def take_row(self: SessionLocks, values: Any, own: Executor) -> bool:
        await own.execute(("begin transaction", ("mark alive", values)))
        return True

    patch.setattr(SessionLocks, "take_row", take_row)


@planted("sql sessions")
def token_repeated(patch: pytest.MonkeyPatch) -> None:
    """A hold has the token of the previous hold."""
    patch.setattr(Server, "_count", lambda self, name: self.tokens.setdefault(name, 1))


@planted("sql sessions")
def valid_beyond_session_timeout(patch: pytest.MonkeyPatch) -> None:
    """A hold is considered valid for longer than the server keeps an idle session (hazard B2)."""
    patch.setattr(validity, "PROVEN_PART", 5 * validity.PROVEN_PART)


@planted("sql sessions")
def lock_stays(patch: pytest.MonkeyPatch) -> None:
    """The server does not unlock what a session unlocks."""
    real = Server._let_go

    def let_go(self: Server, session: Session, keys: set[Key]) -> None:
        real(self, session, {key for key in keys if key[0] == "liveness_key"})

    patch.setattr(Server, "_let_go", let_go)
