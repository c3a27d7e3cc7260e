"""The lower bound for leaselock on SQLite: two equivalent UPDATE statements, nothing else."""

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
    "client TEXT, expires REAL, metadata TEXT, since REAL) WITHOUT ROWID",
    "INSERT OR IGNORE INTO lock (name, token) VALUES ('bench', 0)",
)
ACQUIRE = (
    "UPDATE lock SET token = ?, holder = ?, client = ?, expires = ?, metadata = ?, since = ? "
    "WHERE name = 'bench' AND holder IS NULL AND token < ?"
)
RELEASE = "UPDATE lock SET holder = NULL WHERE name = 'bench' AND holder = ?"
CLIENT = "c" * 32
HOLDER = f"{CLIENT}:1"
METADATA = '{"host": "a", "pid": 12345, "version": "0.1.0", "thread": "MainThread", "label": null}'


class BareSqlite:
    """No wait, no liveness, no renewal."""

    version: ClassVar[str] = sqlite3.sqlite_version
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.database = sqlite3.connect(folder / "bare.db", isolation_level=None)
        for setting in SETTINGS:
            self.database.execute(setting).fetchall()
        self.execute = self.database.cursor().execute

    def acquire(self) -> None:
        """Acquire the lock, which is always free."""
        now = time.time_ns() // 1000
        values = (now, HOLDER, CLIENT, now + 30.0, METADATA, now / 1e6, now)
        if self.execute(ACQUIRE, values).rowcount != 1:
            raise AssertionError("this contestant supports one process at a time")

    def release(self) -> None:
        """Release the lock."""
        self.execute(RELEASE, (HOLDER,))

    def close(self) -> None:
        """Close the file."""
        self.database.close()
