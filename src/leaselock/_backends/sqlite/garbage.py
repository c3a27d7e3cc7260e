"""Removes what is left of crashed clients, and the rows of names that are not used any more.

There may be hundreds of thousands of such rows, and other processes wait for each transaction. So
a step reads a range of rows without locking the file, and writes in one transaction of a few
milliseconds, only if there is something to remove. `PAUSE` seconds lie between two steps: longer
than the pause of a process that waits for the file, so that it has its turn.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from leaselock._backends.sqlite.database import (
    LONGEST_PAUSE,
    is_busy,
    oldest,
    restart_log,
    shrink,
    transact,
)
from leaselock._backends.sqlite.lock_row import SQL
from leaselock._core.contract.backend import Collected, Unreadable
from leaselock._core.rows import rules
from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leaselock._backends.sqlite.lock_row import Context

T = TypeVar("T")
PAUSE = 1.6 * LONGEST_PAUSE
# How many rows one step reads at most.
MOST_READ = 1000
# How many rows one transaction deletes at most: about two milliseconds.
MOST_WRITTEN = 150
# Tidying a name that is in use takes as long as deleting this many rows.
TIDYING = 5
# How many names with waiters one step tidies.
MOST_QUEUES = MOST_WRITTEN // TIDYING


class Position(NamedTuple):
    """Where the next step of a garbage collection begins."""

    part: Literal["rows", "queues", "pages"]
    row: int = 0
    """The last row that was examined."""
    name: str = ""
    """The last name with waiters that was examined."""


class Steps(Protocol):
    """What the steps of a garbage collection need."""

    database: sqlite3.Connection

    def read(self, work: Callable[[], T], /) -> T:
        """Run a function, and again while transactions of others block it."""
        ...

    def write(self, work: Callable[[Context], int], /) -> int:
        """Run a function in one transaction, and send its messages."""
        ...


class Range(NamedTuple):
    """Consecutive rows of the table of locks."""

    after: int
    """The row before the first one."""
    last: int
    complete: bool
    """Whether no row follows."""
    unused: int
    """How many of them may be deleted."""
    in_use: int
    """How many of them may have the hold of a dead client."""


def step(steps: Steps, given: object, token_ttl: float) -> Collected:
    """One step, from a position on: first what is left of dead clients and the rows of names that
    are not used any more, then the claims of dead clients, then the free pages.
    """
    database, old = steps.database, oldest(token_ttl)
    position = given if isinstance(given, Position) else Position("rows")
    if position.part == "rows":
        rows = steps.read(lambda: rows_after(database, position.row, old))
        following = Position("queues") if rows.complete else Position("rows", rows.last)
        if not (rows.unused or rows.in_use):
            return Collected(0, following)
        return Collected(steps.write(partial(collected, rows, old)), following, PAUSE)
    if position.part == "queues":
        names = steps.read(lambda: next_queues(database, position.name))
        if names:
            ended = steps.write(partial(tidied, names, old))
            return Collected(ended, Position("queues", name=names[-1]), PAUSE)
        steps.write(expire)
        return Collected(0, Position("pages"), PAUSE)
    if steps.read(lambda: shrink(database)):
        return Collected(0, position, PAUSE)
    restart_log(database)  # the file has its pages until then
    return Collected(0)


def expire(context: Context) -> int:
    """Delete the tombstones and watchers whose time has passed."""
    context.database.execute(SQL["expire tombstones"], (context.now,))
    context.database.execute(SQL["expire watchers"], (context.now,))
    return 0


def rows_after(database: sqlite3.Connection, after: int, old: float) -> Range:
    """The rows that one step is about. The file is not locked for others meanwhile."""
    last, unused, in_use, complete = after, 0, 0, True
    with closing(database.cursor()) as cursor:
        rows = cursor.execute(SQL["rows after"], (old, after, MOST_READ))
        for count, (row, idle, is_old) in enumerate(rows, 1):
            last = row
            if idle and is_old:
                unused += 1
            elif not idle:
                in_use += 1
            if unused + TIDYING * in_use >= MOST_WRITTEN or count == MOST_READ:
                complete = False
                break
    return Range(after, last, complete, unused, in_use)


def collected(rows: Range, old: float, context: Context) -> int:
    """End what is left of dead clients in the rows, and delete those that are not used any more;
    return how many names that concerns.
    """
    ended = 0
    if rows.in_use:
        names = context.database.execute(SQL["names of rows"], rows[:2]).fetchall()
        ended = tidied((name for (name,) in names), old, context)
    return ended + prune(context.database, rows, old)


def prune(database: sqlite3.Connection, rows: Range, old: float) -> int:
    """Delete those of the rows that are not used any more; return how many.

    The greatest of their tokens is kept, and the next token of each of them will be greater.
    """
    values = (*rows[:2], old)
    ((token,),) = database.execute(SQL["greatest token"], values).fetchall()
    if token is None:
        return 0
    database.execute(SQL["raise floor"], (str(token), token))
    return database.execute(SQL["prune"], values).rowcount


def tidied(names: Iterable[str], old: float, context: Context) -> int:
    """Tidy these names; return how many had something to remove. A name that is not used any more
    is not counted: it is when its row is deleted.
    """
    ended, database = 0, context.database
    for name in names:
        before = database.total_changes
        with suppress(Unreadable):  # the listings report it
            rules.tidy(context.row(name))
        if database.total_changes > before:
            unused = database.execute(SQL["is unused"], (name, old)).fetchone()
            ended += unused is None
    return ended


def next_queues(database: sqlite3.Connection, after: str) -> list[str]:
    """The next names that have waiters."""
    rows = database.execute(SQL["next queues"], (after, MOST_QUEUES)).fetchall()
    return [name for (name,) in rows]


def prune_some(database: sqlite3.Connection, token_ttl: float) -> None:
    """Delete some rows of names that are not used any more, as each start of a client does: so the
    file does not grow where `gc` is never run.

    The place is random, and few rows are read: a start must not take longer in a large file.
    """
    if not token_ttl:
        return
    old = oldest(token_ttl)
    try:
        ((first, last),) = database.execute(SQL["range of rows"]).fetchall()
        if first is None:
            return
        elsewhere = max(0, last - first - MOST_READ) + 1
        after = first - 1 + int.from_bytes(os.urandom(8), "big") % elsewhere
        rows = rows_after(database, after, old)
        if rows.unused:
            transact(database, lambda: prune(database, rows, old))
    except sqlite3.Error as error:
        # Another client is in a transaction, or the disk is full: the next start deletes them.
        if not is_busy(error) and error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
            raise
