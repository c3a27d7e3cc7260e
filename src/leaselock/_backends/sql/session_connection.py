"""One connection of the protocols "row" and "advisory", as the pool and the watcher share it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.client.concurrency_limit import ConcurrencyLimit

if TYPE_CHECKING:
    from leaselock._backends.sql.connection import Connection
    from leaselock._backends.sql.session_state import Session


class SessionConnection:
    """A connection, its session, and the queue of requests for it."""

    def __init__(self, connection: Connection, session: Session) -> None:
        self.connection = connection
        self.session = session
        self.settings: set[str] = set()
        self.limit = ConcurrencyLimit(1)
        # Until when it is kept for another claim, while it serves none.
        self.kept_until = 0.0
