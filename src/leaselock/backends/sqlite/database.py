"""The SQLite file: opened, checked, and written to in whole transactions.

Transactions are a few microseconds long and never wait for a lock of ours, only for one another;
SQLite's own way of waiting sleeps for milliseconds, so we wait ourselves, and to a deadline.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import TYPE_CHECKING, TypeVar

from leaselock.backends.sqlite.clients import Clients
from leaselock.backends.sqlite.kernel import boot
from leaselock.backends.sqlite.place import unchanged
from leaselock.backends.sqlite.shelf import SQL, statement_text
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.sqlite.place import Place

T = TypeVar("T")
SCHEMA = "1"
PRUNE_AFTER = 7 * 86400.0
FIRST_PAUSE = 0.00002
LONGEST_PAUSE = 0.001
PAGE = 512
SETTINGS = (
    # Small pages: a lock's row is small, and every commit writes whole pages.
    f"PRAGMA page_size = {PAGE}",
    "PRAGMA journal_mode = WAL",
    # Survives a crash of any process. A power cut may lose the last commits; but it ends every
    # hold, too, and tokens cannot fall back, since they follow the clock.
    "PRAGMA synchronous = NORMAL",
    # A checkpoint waits for the disk; this many frames of half a KiB share one.
    "PRAGMA wal_autocheckpoint = 16000",
    "PRAGMA journal_size_limit = 8000000",
)

# Above this, a graveyard: connections that a forked child inherited. Closing one would undo
# locks of the parent, so they are kept and never touched.
INHERITED: list[sqlite3.Connection] = []


def busy(error: sqlite3.Error) -> bool:
    """Whether another process is in the middle of a transaction, so that nothing was done."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    )


def relieved(error: sqlite3.Error, database: sqlite3.Connection) -> bool:
    """Whether *error* says that the disk is full, and the log has been made to start anew.

    What was refused may be tried again then: the log's own space on the disk is used again.
    """
    if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_FULL:
        return False
    return started_anew(database)


def started_anew(database: sqlite3.Connection) -> bool:
    """Bring the log into the file, whose pages must have room on the disk; False if not."""
    try:
        database.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    except sqlite3.Error:
        return False  # what was to be done before says why
    return True


def patiently(attempt: Callable[[], T], now: Callable[[], float], until: float, path: str) -> T:
    """Try *attempt* until no other transaction is in its way; Refused after *until*."""
    pause = FIRST_PAUSE
    while True:
        try:
            return attempt()
        except sqlite3.Error as error:
            if not busy(error):
                raise translated(error, path) from error
            if now() >= until:
                raise NotApplied(
                    f"{path} is locked by another process in the middle of a transaction; "
                    "if that process is stopped, continue it or end it"
                ) from error
        # SQLite tells nobody that a transaction is over.
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)


def translated(error: sqlite3.Error, path: str) -> NotApplied | OutcomeUnknown:
    """Did it happen? A failed write leaves nothing behind; a failed read of the disk might."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    unsure = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT)
    kind = OutcomeUnknown if unsure else NotApplied
    return kind(f"{path}: {error} ({getattr(error, 'sqlite_errorname', 'SQLite')})")


def connect(place: Place, now: Callable[[], float], until: float) -> sqlite3.Connection:
    """Open the file, and make or check what is in it."""
    try:
        database = sqlite3.connect(
            _uri(place.path), uri=True, isolation_level=None, check_same_thread=False, timeout=0
        )
    except sqlite3.Error as error:
        raise translated(error, place.path) from error
    try:
        patiently(lambda: _prepare(database, place), now, until, place.path)
        if not unchanged(place):
            raise NotApplied(f"{place.path} was removed or replaced while it was being opened")
    except BaseException:
        database.close()
        raise
    return database


def _uri(path: str) -> str:
    # Not to be created: the file was made with the right permissions, or it is gone again.
    # What has a meaning in such a URI: https://www.sqlite.org/uri.html, section 3.1.
    plain = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{plain}?mode=rw"


def _prepare(database: sqlite3.Connection, place: Place) -> None:
    for setting in SETTINGS:
        database.execute(setting).fetchall()
    transact(database, lambda: _lay_out(database, place))
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    if os.stat(place.path).st_size < pages * PAGE:
        # As long as there is room on the disk: a full one leaves only what the file has.
        started_anew(database)


def transact(database: sqlite3.Connection, work: Callable[[], T]) -> T:
    """Run *work* in a transaction that is committed whole or not at all."""
    if database.in_transaction:
        # An interrupt struck between BEGIN and what follows.
        database.execute("ROLLBACK")
    database.execute("BEGIN IMMEDIATE")
    try:
        result = work()
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    return result


def _lay_out(database: sqlite3.Connection, place: Place) -> None:
    execute = database.execute
    for statement in statement_text("schema.sql").split(";"):
        execute(statement)
    found = execute(SQL["fact"], ("schema",)).fetchone()
    if found is None:
        execute(SQL["state"], ("schema", SCHEMA))
        execute(SQL["state"], ("floor", "0"))
    elif found[0] != SCHEMA:
        raise NotApplied(
            f"{place.path} has the layout {found[0]} of another version of leaselock, "
            f"not {SCHEMA}: use that version, or another file"
        )
    _enter_boot(database, place)
    old = time.time() - PRUNE_AFTER
    execute(SQL["raise floor"], (old,))
    execute(SQL["prune"], (old,))


def _enter_boot(database: sqlite3.Connection, place: Place) -> None:
    """Times on the boot clock mean nothing after a reboot, which has ended every hold."""
    row = database.execute(SQL["fact"], ("boot",)).fetchone()
    ours, theirs = boot(), row[0] if row else ""
    if theirs == ours:
        return
    clients = Clients(place.clients)
    if any(clients.alive(client) for (client,) in database.execute(SQL["clients"]).fetchall()):
        raise NotApplied(
            f"{place.path} is in use by processes whose clock differs from ours (another time "
            "namespace or container): give each its own file, or use a store with a server"
        )
    for forget in ("forget holds", "forget waiters", "forget graves"):
        database.execute(SQL[forget])
    database.execute(SQL["state"], ("boot", ours))
