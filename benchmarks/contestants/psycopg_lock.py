"""PostgreSQL's own advisory locks by psycopg, as their documentation shows them.

The server queues the waiters. There is no token and no record of the holder, and the loss of the
connection is not reported to the holder.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import psycopg

KEY = 17


class Advisory:
    """One connection that commits each statement; psycopg prepares repeated statements."""

    version: ClassVar[str] = psycopg.__version__
    reentrant: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        url = Path(folder, "url").read_text()
        self.connection = psycopg.connect(url, autocommit=True)
        self.cursor = self.connection.cursor()
        self.use_side("write")

    def use_side(self, side: str) -> None:
        """Use the shared or the exclusive lock of the same key."""
        shared = "_shared" if side == "read" else ""
        self.statements = [f"SELECT pg_advisory_{word}{shared}(%s)" for word in ("lock", "unlock")]

    def acquire(self) -> None:
        """Acquire the lock."""
        self.cursor.execute(self.statements[0], [KEY])

    def release(self) -> None:
        """Release the lock."""
        self.cursor.execute(self.statements[1], [KEY])

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
