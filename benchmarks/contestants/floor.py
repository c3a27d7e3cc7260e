"""The floor under leaselock: the same two UPDATEs by hand, and nothing around them."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = (
    "PRAGMA page_size = 1024",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "CREATE TABLE IF NOT EXISTS lock (name TEXT PRIMARY KEY, token INTEGER, holder TEXT, "
    "client TEXT, expires REAL, about TEXT, since REAL) WITHOUT ROWID",
    "INSERT OR IGNORE INTO lock (name, token) VALUES ('bench', 0)",
)
TAKE = (
    "UPDATE lock SET token = ?, holder = ?, client = ?, expires = ?, about = ?, since = ? "
    "WHERE name = 'bench' AND holder IS NULL AND token < ?"
)
DROP = "UPDATE lock SET holder = NULL WHERE name = 'bench' AND holder = ?"
CLIENT = "c" * 32
HOLDER = f"{CLIENT}:1"
ABOUT = '{"host": "a", "pid": 12345, "version": "0.1.0", "thread": "MainThread", "label": null}'


class Floor:
    """Says only whether it was free: no wait, no liveness, no renewal."""

    version: ClassVar[str] = sqlite3.sqlite_version
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.database = sqlite3.connect(folder / "floor.db", isolation_level=None)
        for setting in SETTINGS:
            self.database.execute(setting).fetchall()
        self.execute = self.database.cursor().execute

    def acquire(self) -> None:
        """Take it; it is free, for nobody else is there."""
        now = time.time_ns() // 1000
        words = (now, HOLDER, CLIENT, now + 30.0, ABOUT, now / 1e6, now)
        if self.execute(TAKE, words).rowcount != 1:
            raise AssertionError("the floor is for one process at a time")

    def release(self) -> None:
        """Give it back."""
        self.execute(DROP, (HOLDER,))

    def close(self) -> None:
        """Close the file."""
        self.database.close()
