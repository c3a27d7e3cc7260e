"""The lock of a transaction in MySQL and MariaDB: the row of the name in ``leaselock_row``.

GET_LOCK belongs to the connection. It would have to be released after the commit; otherwise the
pool would get back a connection that still holds it. A row lock ends with the transaction.

Invariant: the row exists before it is locked. Locking a missing row would lock the gap around it,
and with it other names (hazard J10). So the row is created and committed by another connection.
If `leaselock gc` deletes it in between, the transaction creates it itself, which also locks it.
Nothing is read without a lock: such a read would fix the snapshot of the transaction.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leaselock._core.client.timing import pause
from leaselock._drivers.system_env import SystemEnv, now
from leaselock.errors import NotApplied
from leaselock.sql.steps import (
    CreateRow,
    Execute,
    Invalidate,
    Sleep,
    Step,
    autocommits,
    code_of,
    timed_out,
)

if TYPE_CHECKING:
    from leaselock.sql.steps import Steps

NO_TABLE = 1146
READ_ONLY = 1792
# MariaDB has one error for a lock wait timeout and for NOWAIT, MySQL has two.
NOT_IN_TIME = {1205, 3572}
LONGEST_WAIT = 2**30
LONGEST_DOUBLING = 3

SETTINGS = """SELECT @@autocommit, @@global.read_only,
    @@innodb_lock_wait_timeout, @@innodb_rollback_on_timeout"""
# Names are bytes. Written in hexadecimal, no character set and no driver changes them.
LOCK = "SELECT name FROM leaselock_row WHERE name = UNHEX(:name) FOR UPDATE"
LIMIT = "SET SESSION innodb_lock_wait_timeout = :limit"
MAKE = "INSERT INTO leaselock_row VALUES (UNHEX(:name)) ON DUPLICATE KEY UPDATE name = name"
SCHEMA = "CREATE TABLE leaselock_row (name VARBINARY(255) PRIMARY KEY) ENGINE = InnoDB"

Tried = Generator[Step, Any, bool]
Locking = Generator[Step, Any, bool | None]


def take(name: str, until: float) -> Steps:
    """The steps that take the lock: at once if it is free, otherwise by *until*."""
    every, replica, limit, fatal = yield Execute(SETTINGS)
    if every:
        raise autocommits()
    if replica:
        raise NotApplied("this server is read-only: a row lock here excludes no writer")
    yield CreateRow(name)
    try:
        yield from (_take_once if fatal else _take)(name, until, limit)
    except Exception as error:
        if code_of(error) == NO_TABLE:
            raise NotApplied(no_table()) from error
        if code_of(error) == READ_ONLY:
            raise NotApplied("in a transaction that may only read, no row can be locked") from error
        raise


def no_table() -> str:
    """The message for a missing table."""
    return f"there is no table leaselock_row: run `leaselock setup URL`, or {SCHEMA}"


def make_row(connection: Any, name: str) -> None:
    """Create and commit the row of the name, if it is missing, on a connection of a driver."""
    row = (name.encode().hex(),)
    cursor = connection.cursor()
    cursor.execute("SELECT name FROM leaselock_row WHERE name = UNHEX(%s)", row)
    # Only if the row is missing: an INSERT IGNORE would wait for a locked row.
    if cursor.fetchone() is None:
        cursor.execute("SET innodb_lock_wait_timeout = 1")
        cursor.execute("INSERT IGNORE INTO leaselock_row (name) VALUES (UNHEX(%s))", row)
        connection.commit()
    cursor.close()


@contextmanager
def row_errors(errors: type[Exception]) -> Iterator[list[str]]:
    """Report errors of `make_row` as NotApplied. The list stays empty if the row is being made by
    another transaction, which has it locked.
    """
    made: list[str] = []
    try:
        yield made
    except errors as error:
        code = error.args[0] if error.args else None
        if code in NOT_IN_TIME:
            return
        missing = code == NO_TABLE
        reason = no_table() if missing else f"the lock's row could not be made: {error}"
        raise NotApplied(reason) from error


def _take(name: str, until: float, limit: int) -> Steps:
    if (yield from _try(name, limit)):
        return
    tries = 0
    while (remaining := until - now()) > 0:
        if remaining >= 1:
            got = yield from _wait(name, math.floor(min(remaining, LONGEST_WAIT)), limit)
        else:
            # The server counts whole seconds, so the last one is spent polling.
            yield Sleep(min(pause(min(tries, LONGEST_DOUBLING), SystemEnv().random()), remaining))
            got = yield from _try(name, limit)
            tries += 1
        if got:
            return
    raise timed_out(name)


def _take_once(name: str, until: float, limit: int) -> Steps:
    """For servers on which a timeout ends the transaction (innodb_rollback_on_timeout)."""
    remaining = until - now()
    seconds = math.ceil(min(remaining, LONGEST_WAIT)) if remaining > 0 else 0
    if (yield from (_wait(name, seconds, limit) if seconds else _try(name, limit))):
        return
    yield Invalidate()
    raise timed_out(
        name, "another transaction holds it, and this server has ended the one that waited"
    )


def _try(name: str, limit: int) -> Tried:
    # SKIP LOCKED would continue with the next row and lock the gap before it.
    got = yield from _lock(name, f"{LOCK} NOWAIT")
    if got is None:
        got = yield from _limited(1, limit, _lock(name, MAKE))
    return bool(got)


def _wait(name: str, seconds: int, limit: int) -> Tried:
    """Wait in the queue of the server."""
    got = yield from _limited(seconds, limit, _lock(name, LOCK))
    if got is None:
        got = yield from _limited(seconds, limit, _lock(name, MAKE))
    return bool(got)


def _limited(seconds: int, limit: int, steps: Locking) -> Locking:
    """Run *steps* with another lock wait timeout, which is a setting of the session."""
    yield Execute(LIMIT, {"limit": seconds})
    try:
        got = yield from steps
    except Exception as error:
        if not getattr(error, "connection_invalidated", False):
            yield Execute(LIMIT, {"limit": limit})
        raise
    yield Execute(LIMIT, {"limit": limit})
    return got


def _lock(name: str, statement: str) -> Locking:
    """Whether the statement locked the row; None if there is no row."""
    try:
        row = yield Execute(statement, {"name": name.encode().hex()})
    except Exception as error:
        if code_of(error) not in NOT_IN_TIME:
            raise
        return False
    return True if row is not None or statement == MAKE else None
