"""The SQLite connection: opening, checking the layout, and transactions.

Transactions take a few microseconds and wait for one another only. SQLite's busy handler sleeps for
milliseconds, so this module waits itself, in shorter steps and until a deadline.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from leaselock._backends.sqlite.client_registry import ClientRegistry
from leaselock._backends.sqlite.host_checks import WINDOWS, boot
from leaselock._backends.sqlite.location import unchanged
from leaselock._backends.sqlite.lock_row import SQL, statement_text
from leaselock._core.contract.layout import Layout, check_layout
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.sqlite.location import Location
    from leaselock._core.contract.backend import ErrorReason

T = TypeVar("T")
# To be raised with every change of schema.sql.
SCHEMA = Layout(2, 2)
OTHER_FILE = (
    "end the programs that use it, and move the file away; or choose another file for locks"
)
# "llck": marks a file of this library, as file(1) shows it.
APPLICATION_ID = 0x6C6C636B
# The columns of the tables. A file with fewer was made by a version that used the same number for
# another layout.
COLUMNS = {
    "fact": "key value",
    "hold": "name id client lifetime token expires metadata since mode permits step offered",
    "lock": "name token id client lifetime expires metadata since free_from step offered permits "
    "lapsed_offer",
    "tombstone": "id until",
    "waiter": "name ticket id client lease metadata since mode permits last_seen",
    "watcher": "name id client until",
}
TABLES = set(COLUMNS)
FIRST_PAUSE = 0.00002
LONGEST_PAUSE = 0.0005
PAGE = 512
# How many free pages are given back to the file system at once: that takes two milliseconds.
PAGES_AT_ONCE = 250
# Upper limit of the pages in use, half a MiB, that are written anew at once.
MOST_COPIED = 1000
# What `PRAGMA auto_vacuum` returns for INCREMENTAL.
INCREMENTAL = 2
CREATION_SETTINGS = (
    # Small pages, because a row is small and every commit writes whole pages.
    f"PRAGMA page_size = {PAGE}",
    # Of a new file: free pages can be given back in steps. SQLite writes this setting, and waits
    # for the disk, even if the file has it already.
    "PRAGMA auto_vacuum = INCREMENTAL",
)
SETTINGS = (
    "PRAGMA journal_mode = WAL",
    # Commits survive a crash of any process. A power failure may lose the last ones, but it ends
    # every hold, too, and tokens still grow because they follow the clock.
    "PRAGMA synchronous = NORMAL",
    # A checkpoint waits for the disk, so there is one for this many frames of half a KiB.
    "PRAGMA wal_autocheckpoint = 16000",
    "PRAGMA journal_size_limit = 8000000",
)

# Connections that a forked child inherited. Closing one would release locks of the parent, so they
# are kept and never used.
INHERITED: list[sqlite3.Connection] = []


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process is in the middle of a transaction; nothing was executed then."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    )


def made_space(error: sqlite3.Error, database: sqlite3.Connection) -> bool:
    """Whether the disk is full according to *error*, and the log could be restarted.

    The statement may be tried again then, because it reuses the space of the log.
    """
    if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_FULL:
        return False
    return restart_log(database)


def restart_log(database: sqlite3.Connection) -> bool:
    """Write the log into the file, which needs space for its pages, and begin it anew; return
    whether that worked.

    Others can write while the log is copied, but not while it is begun anew: little is left to copy
    by then.
    """
    return copy_log(database, "PASSIVE") and copy_log(database, "RESTART")


def copy_log(database: sqlite3.Connection, how: str) -> bool:
    """Write the log into the file; return whether that worked."""
    try:
        database.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
    except sqlite3.Error:
        return False  # the error of the statement before has the reason
    return True


def retry_while_busy(
    attempt: Callable[[], T], now: Callable[[], float], until: float, path: str
) -> T:
    """Run *attempt* again while other transactions block it; NotApplied after *until*."""
    pause = FIRST_PAUSE
    while True:
        try:
            return attempt()
        except sqlite3.Error as error:
            if not is_busy(error):
                raise translated(error, path) from error
            if now() >= until:
                raise NotApplied(
                    f"{path} is locked by another process in the middle of a transaction; "
                    "if that process is stopped, continue it or end it",
                    "unreachable",
                ) from error
        # SQLite has no notification for the end of another transaction.
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)


def translated(error: sqlite3.Error, path: str) -> NotApplied | OutcomeUnknown:
    """The error for the caller. A failed write is rolled back; after a failed read of the disk the
    outcome is unknown.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    uncertain = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT)
    kind = OutcomeUnknown if uncertain else NotApplied
    reason: ErrorReason = "refused"
    if code in (sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
        reason = "denied"
    text = f"{path}: {error} ({getattr(error, 'sqlite_errorname', 'SQLite')})"
    if code == sqlite3.SQLITE_IOERR and _disk_is_full(path):
        text += ": the disk is full"
    if code == sqlite3.SQLITE_NOTADB:
        reason = "misconfigured"
        text += ": choose another file for locks"
    return kind(text, reason)


def _disk_is_full(path: str) -> bool:
    """SQLite says it of a write, but not where it has no room for the files beside the database."""
    import shutil

    try:
        return shutil.disk_usage(os.path.dirname(path)).free == 0
    except OSError:
        return False


def connect(location: Location, now: Callable[[], float], until: float) -> sqlite3.Connection:
    """Open the file, and create or check its layout."""
    try:
        database = _open(location.path)
        while os.name == "nt" and _was_in_use(database, location.path) and now() < until:
            database.close()
            time.sleep(LONGEST_PAUSE)  # Windows does not tell when the other program closes it
            database = _open(location.path)
    except sqlite3.Error as error:
        raise translated(error, location.path) from error
    # Bytes that are not UTF-8 make one row unreadable, not the whole answer to a query.
    database.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    try:
        retry_while_busy(lambda: _prepare(database, location), now, until, location.path)
        if not unchanged(location):
            raise NotApplied(f"{location.path} was removed or replaced while it was being opened")
    except BaseException:
        database.close()
        raise
    return database


def _open(path: str) -> sqlite3.Connection:
    return sqlite3.connect(
        _uri(path), uri=True, isolation_level=None, check_same_thread=False, timeout=0
    )


def _was_in_use(database: sqlite3.Connection, path: str) -> bool:
    """Whether SQLite opened a file that may be written for reading only. It does so on Windows when
    another program, such as a scanner, lets no other in for longer than SQLite tries.
    """
    database.execute("BEGIN")
    try:
        # Of a file that is open for reading, BEGIN IMMEDIATE begins a transaction that reads.
        database.execute("PRAGMA user_version = 0")
    except sqlite3.Error as error:
        read_only = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
        return read_only and os.access(path, os.W_OK)
    finally:
        database.execute("ROLLBACK")
    return False


def _uri(path: str) -> str:
    # SQLite must not create the file: it exists with the right permissions, or was removed again.
    # Reserved characters: https://www.sqlite.org/uri.html, section 3.1.
    plain = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    if os.name == "nt":
        plain = "///" + plain.replace("\\", "/")
    return f"file:{plain}?mode=rw"


def _prepare(database: sqlite3.Connection, location: Location) -> None:
    _check_owner(database, location)  # before anything is changed
    created = _pragma(database, "auto_vacuum") == INCREMENTAL
    for setting in SETTINGS if created else CREATION_SETTINGS + SETTINGS:
        database.execute(setting).fetchall()
    if not _is_ready(database, location):
        transact(database, lambda: _create_layout(database, location))
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    if os.stat(location.path).st_size < pages * PAGE:
        # Give the file its full size while the disk has space; later it may be full. Others can
        # write meanwhile.
        copy_log(database, "PASSIVE")


def transact(
    database: sqlite3.Connection, work: Callable[[], T], begin: str = "BEGIN IMMEDIATE"
) -> T:
    """Run *work* in a transaction, which is committed or rolled back."""
    database.execute(begin)
    try:
        result = work()
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    return result


def oldest(token_ttl: float) -> float:
    """Since when a name must have been locked for its row to be kept."""
    return time.time() - token_ttl if token_ttl else 0.0


def row_numbers(database: sqlite3.Connection) -> int:
    """How many numbers the rows of the locks span: there are no more rows."""
    try:
        ((first, last),) = database.execute(SQL["range of rows"]).fetchall()
    except sqlite3.Error:
        return 0  # the next request has the same error
    return 0 if first is None else last - first + 1


def _pragma(database: sqlite3.Connection, name: str) -> int:
    ((value,),) = database.execute(f"PRAGMA {name}").fetchall()
    return int(value)


def shrink(database: sqlite3.Connection) -> bool:
    """Give some free pages back to the file system; return whether more are left.

    A file of an earlier version cannot do so in steps. It is written anew, once, if that is quick:
    if most of its pages are free.
    """
    free = _pragma(database, "freelist_count")
    if not free:
        return False
    if _pragma(database, "auto_vacuum"):
        # execute() would take one step of the statement, which is one page.
        database.executescript(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})")
        return free > PAGES_AT_ONCE
    ours = _pragma(database, "application_id") == APPLICATION_ID
    if ours and _pragma(database, "page_count") - free <= MOST_COPIED:
        database.execute("VACUUM")
    return False


def _tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute(SQL["tables"]).fetchall()}


def _check_owner(database: sqlite3.Connection, location: Location) -> bool:
    """Refuse a database of another program; return whether the file is to be marked as ours.

    A file of an earlier version has no mark, but our tables. It may have other tables, too: then it
    is used, and not marked.
    """
    application_id = _pragma(database, "application_id")
    tables = _tables(database)
    if application_id == APPLICATION_ID or tables >= TABLES:
        return application_id == 0 and tables == TABLES
    if tables or application_id:
        with suppress(OSError):
            os.rmdir(location.clients)  # it was made for this file
        some = f"with the tables {', '.join(sorted(tables)[:3])}" if tables else "without tables"
        raise NotApplied(
            f"{location.path} is the database of another program ({some}; application_id "
            f"{application_id:#x}): choose another file for locks",
            "misconfigured",
        )
    return True


def _is_ready(database: sqlite3.Connection, location: Location) -> bool:
    """Whether there is nothing to create, to check or to change: most clients that open the file
    wait for no transaction of others.
    """
    if _check_owner(database, location) or missing_columns(database):
        return False
    facts = dict(database.execute(SQL["facts"]).fetchall())
    return facts.get("schema") == str(SCHEMA) and facts.get("boot") == boot()


def missing_columns(database: sqlite3.Connection) -> list[str]:
    """The columns that this version needs and the file has not."""
    known = set(database.execute(SQL["columns"]).fetchall())
    return [
        f"column {column} in the table {table}"
        for table, columns in COLUMNS.items()
        for column in columns.split()
        if (table, column) not in known
    ]


def _create_layout(database: sqlite3.Connection, location: Location) -> None:
    execute = database.execute
    if _check_owner(database, location):
        execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for statement in statement_text("schema.sql").split(";"):
        execute(statement)
    if missing := missing_columns(database):
        raise NotApplied(
            f"{location.path} cannot be used: it has no {missing[0]}, so another version of "
            f"leaselock made it, under the same number of the layout: {OTHER_FILE}",
            "misconfigured",
        )
    marker = execute(SQL["fact"], ("schema",)).fetchone()
    if marker is None:
        execute(SQL["state"], ("schema", str(SCHEMA)))
        execute(SQL["state"], ("floor", "0"))
    else:
        check_layout(location.path, str(marker[0]), SCHEMA, OTHER_FILE)
    _enter_boot(database, location)


def _enter_boot(database: sqlite3.Connection, location: Location) -> None:
    """After a reboot the times of the boot clock are meaningless, and every hold has ended."""
    row = database.execute(SQL["fact"], ("boot",)).fetchone()
    current, recorded = boot(), row[0] if row else ""
    if recorded == current:
        return
    if recorded and recorded.startswith(WINDOWS) != current.startswith(WINDOWS):
        raise NotApplied(
            f"{location.path} was made on another operating system, whose clients cannot be seen "
            f"to live by this one: {OTHER_FILE}",
            "misconfigured",
        )
    registry = ClientRegistry(location.clients)
    if any(registry.alive(client) for (client,) in database.execute(SQL["clients"]).fetchall()):
        raise NotApplied(
            f"{location.path} is in use by processes whose clock differs from ours (another time "
            "namespace or container): give each its own file, or use a store with a server",
            "misconfigured",
        )
    for forget in (
        *("forget holds", "free all", "forget waiters", "forget tombstones", "forget watchers"),
    ):
        database.execute(SQL[forget])
    database.execute(SQL["state"], ("boot", current))
