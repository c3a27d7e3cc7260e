"""The resource that the lock protects: a table row that rejects writes with older tokens.

A holder with a token writes by `leaselock.optimistic.fenced_write`, which compares tokens. A write
without a token cannot be checked, and is accepted.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from leaselock import FenceRejected
from leaselock.optimistic import fenced_write

if TYPE_CHECKING:
    from verification.hazards.worker import Result


class Register:
    """A row of a database in memory."""

    def __init__(self) -> None:
        self.rows = sqlite3.connect(":memory:")
        self.rows.execute("CREATE TABLE work (id INTEGER, text TEXT, fence INTEGER)")
        self.rows.execute("INSERT INTO work VALUES (1, '', NULL)")
        self.rows.commit()

    def write(self, grant: Result) -> bool:
        """Write as the holder of *grant*; return whether the write was accepted."""
        if grant.token is None:
            self.rows.execute("UPDATE work SET text = 'without a token' WHERE id = 1")
            return True
        try:
            fenced_write(self.rows, "work", {"id": 1}, {"text": "mine"}, token=grant.token)
        except FenceRejected:
            return False
        finally:
            self.rows.commit()
        return True

    def close(self) -> None:
        """Close the database."""
        self.rows.close()
