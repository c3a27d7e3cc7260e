"""The lock of a transaction in MySQL and MariaDB: the name's row in ``leaselock_row``.

GET_LOCK belongs to the connection: it would have to be given back after the commit, by somebody who
is called then; else the pool gets a connection that holds it. A row lock ends with the transaction.

Law: the row is there before it is locked. A row that is missing locks the gap around it, and other
names' with it (hazard J10); so it is made beforehand, and committed, by another connection. Only if
`leaselock gc` deletes it in between, it is made in the transaction, which has it locked by that.
Nothing is read without a lock: the first such read fixes what the transaction sees from then on.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from leaselock.core.timing import pause
from leaselock.drivers.system_env import SystemEnv, now
from leaselock.errors import NotApplied
from leaselock.sql.steps import (
    Ask,
    Invalidate,
    Make,
    Pause,
    Step,
    autocommits,
    code_of,
    timed_out,
)

if TYPE_CHECKING:
    from leaselock.sql.steps import Taking

NO_TABLE = 1146
READ_ONLY = 1792
# MariaDB says of a lock that was not waited for what it says of one that was, MySQL has a word.
NOT_IN_TIME = {1205, 3572}
LONGEST_WAIT = 2**30
LONGEST_DOUBLING = 3

SETTINGS = """SELECT @@autocommit, @@global.read_only,
    @@innodb_lock_wait_timeout, @@innodb_rollback_on_timeout"""
# Names are bytes there. In hexadecimal no character set and no driver makes others of them.
LOCK = "SELECT name FROM leaselock_row WHERE name = UNHEX(:name) FOR UPDATE"
LIMIT = "SET SESSION innodb_lock_wait_timeout = :limit"
MAKE = "INSERT INTO leaselock_row VALUES (UNHEX(:name)) ON DUPLICATE KEY UPDATE name = name"
SCHEMA = "CREATE TABLE leaselock_row (name VARBINARY(255) PRIMARY KEY) ENGINE = InnoDB"

Tried = Generator[Step, Any, bool]
Locking = Generator[Step, Any, bool | None]


def take(name: str, until: float) -> Taking:
    """The steps; without waiting if it is free, else until then."""
    every, replica, limit, fatal = yield Ask(SETTINGS)
    if every:
        raise autocommits()
    if replica:
        raise NotApplied("this server only reads: its row locks exclude nobody elsewhere")
    yield Make(name)
    try:
        yield from (_take_once if fatal else _take)(name, until, limit)
    except Exception as error:
        if code_of(error) == NO_TABLE:
            raise NotApplied(no_table()) from error
        if code_of(error) == READ_ONLY:
            raise NotApplied("in a transaction that may only read, no row can be locked") from error
        raise


def no_table() -> str:
    """What to do without the table."""
    return f"there is no table leaselock_row: run `leaselock init URL`, or {SCHEMA}"


def _take(name: str, until: float, limit: int) -> Taking:
    if (yield from _try(name, limit)):
        return
    tries = 0
    while (left := until - now()) > 0:
        if left >= 1:
            got = yield from _wait(name, math.floor(min(left, LONGEST_WAIT)), limit)
        else:
            # The server counts whole seconds; the last one is spent with looking.
            yield Pause(min(pause(min(tries, LONGEST_DOUBLING), SystemEnv().random()), left))
            got = yield from _try(name, limit)
            tries += 1
        if got:
            return
    raise timed_out(name)


def _take_once(name: str, until: float, limit: int) -> Taking:
    """Where a wait that was in vain ends the whole transaction (innodb_rollback_on_timeout)."""
    left = until - now()
    seconds = math.ceil(min(left, LONGEST_WAIT)) if left > 0 else 0
    if (yield from (_wait(name, seconds, limit) if seconds else _try(name, limit))):
        return
    yield Invalidate()
    raise timed_out(
        name, "another transaction holds it, and this server has ended the one that waited"
    )


def _try(name: str, limit: int) -> Tried:
    # Not SKIP LOCKED: it goes on to the next row, and leaves a lock on the gap before that.
    got = yield from _lock(name, f"{LOCK} NOWAIT")
    if got is None:
        got = yield from _limited(1, limit, _lock(name, MAKE))
    return bool(got)


def _wait(name: str, seconds: int, limit: int) -> Tried:
    """Stand in the server's queue."""
    got = yield from _limited(seconds, limit, _lock(name, LOCK))
    if got is None:
        got = yield from _limited(seconds, limit, _lock(name, MAKE))
    return bool(got)


def _limited(seconds: int, limit: int, process: Locking) -> Locking:
    """Run it with another limit to the server's patience, which is the session's."""
    yield Ask(LIMIT, {"limit": seconds})
    try:
        got = yield from process
    except Exception as error:
        if not getattr(error, "connection_invalidated", False):
            yield Ask(LIMIT, {"limit": limit})
        raise
    yield Ask(LIMIT, {"limit": limit})
    return got


def _lock(name: str, statement: str) -> Locking:
    """Whether the statement has locked the row; None when there is none."""
    try:
        row = yield Ask(statement, {"name": name.encode().hex()})
    except Exception as error:
        if code_of(error) not in NOT_IN_TIME:
            raise
        return False
    return True if row is not None or statement == MAKE else None
