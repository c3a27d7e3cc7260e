"""The findings of `leaselock doctor` about a lock file that could be opened.

A file that is unsuitable (a network file system, foreign owners, links) is refused when it is
opened, so this module reports only what is useful to know besides.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from leaselock._backends.sqlite.lock_row import SQL
from leaselock._core.contract.backend import Finding

if TYPE_CHECKING:
    import sqlite3

# Locking fails on a full disk; with less than this, a disk is nearly full.
LOW_SPACE = 16 * 2**20
# With less than this, the next write-ahead log does not fit.
NO_SPACE = 2**20


def findings(database: sqlite3.Connection, path: str) -> tuple[Finding, ...]:
    """One finding for each check."""
    return (
        Finding("ok", f"{path} is on a local file system, and can be read and written"),
        _layout(database),
        _log(database),
        _mode(path),
        _space(path),
    )


def _layout(database: sqlite3.Connection) -> Finding:
    """The marker, which was checked when the file was opened."""
    (marker,) = database.execute(SQL["fact"], ("schema",)).fetchone()
    return Finding("ok", f"the layout of the locks is {marker}")


def _log(database: sqlite3.Connection) -> Finding:
    ((mode,),) = database.execute("PRAGMA journal_mode").fetchall()
    ((version,),) = database.execute("SELECT sqlite_version()").fetchall()
    if mode == "wal":
        return Finding("ok", f"SQLite {version} with a write-ahead log")
    return Finding("fail", f"the journal is {mode}, not a write-ahead log", "move the file away")


def _mode(path: str) -> Finding:
    if os.name == "nt":
        return Finding("ok", "its folder decides who can use it: see its permissions")
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o077:
        advice = f"every user who may write can acquire locks: chmod 600 {path}, unless intended"
        return Finding("warn", f"the file is open to others (mode {mode:o})", advice)
    return Finding("ok", "only its owner can read and write the file")


def _space(path: str) -> Finding:
    import shutil

    from leaselock._core.rows.maintenance import space_finding  # loaded where it is used

    free = shutil.disk_usage(os.path.dirname(path)).free
    return space_finding("its disk", free, low=LOW_SPACE, least=NO_SPACE)
