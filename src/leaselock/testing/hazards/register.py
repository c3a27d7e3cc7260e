"""What the work under the lock writes to: one row that refuses an older token.

Law: whoever has a token shows it, and `leaselock.optimistic.fenced_write` judges. Who has none
cannot be told from anybody else, and is let in.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from leaselock import FenceRejected
from leaselock.optimistic import fenced_write

if TYPE_CHECKING:
    from leaselock.testing.hazards.actor import Answer


class Register:
    """A row in memory."""

    def __init__(self) -> None:
        self.rows = sqlite3.connect(":memory:")
        self.rows.execute("CREATE TABLE work (id INTEGER, text TEXT, fence INTEGER)")
        self.rows.execute("INSERT INTO work VALUES (1, '', NULL)")
        self.rows.commit()

    def write(self, holder: Answer) -> bool:
        """A write by the holder who was granted that; whether it was let in."""
        if holder.token is None:
            self.rows.execute("UPDATE work SET text = 'by somebody' WHERE id = 1")
            return True
        try:
            fenced_write(self.rows, "work", {"id": 1}, {"text": "mine"}, token=holder.token)
        except FenceRejected:
            return False
        finally:
            self.rows.commit()
        return True

    def close(self) -> None:
        """Forget it."""
        self.rows.close()
