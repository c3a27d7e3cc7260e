"""The server grants a lock to a writer although readers hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.sql_server import Server

if TYPE_CHECKING:
    import pytest
    from verification.simulation.sql_server import Key, Session


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def is_free(self: Server, session: Session, key: Key, shared: bool) -> bool:
        return self.owners.get(key, session) is session

    patch.setattr(Server, "_is_free", is_free)
