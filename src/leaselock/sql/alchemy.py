"""Who carries the steps out: a connection of SQLAlchemy, blocking or of asyncio.

Law: what is not an ordinary error (Ctrl-C, a cancelled task) is not answered by further statements:
SQLAlchemy has closed the connection by then, and what it held is gone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

from leaselock.errors import ClientClosed, NotApplied
from leaselock.sql import mysql, postgres
from leaselock.sql.steps import Ask, Invalidate, Make, Pause

if TYPE_CHECKING:
    from leaselock.sql.steps import Autocommit, Step, Taking

PROCESSES = {"postgresql": postgres.take, "mysql": mysql.take, "mariadb": mysql.take}
MOST_NAMES = 10_000

# The names whose rows have been seen, so that they are looked for once per process.
_made: WeakKeyDictionary[sqlalchemy.Pool, set[str]] = WeakKeyDictionary()


def is_async(target: object) -> bool:
    """Whether it is one of the asynchronous twins."""
    return isinstance(target, AsyncConnection | AsyncSession | async_scoped_session)


def take(target: Any, name: str, until: float) -> None:
    """Take the lock on a blocking connection or session."""
    if isinstance(target, orm.Session | orm.scoped_session):
        target = target.connection()
    if not isinstance(target, sqlalchemy.Connection):
        raise TypeError(
            f"a Connection or a Session is wanted, not {type(target).__name__}: "
            "with engine.begin() as connection: …"
        )
    process = _process(target, name, until)
    step = next(process)
    try:
        while True:
            try:
                answer = _answer(target, step)
            except Exception as error:
                step = process.throw(error)
            else:
                step = process.send(answer)
    except StopIteration:
        return


async def take_async(target: Any, name: str, until: float) -> None:
    """Take the lock on one of the twins."""
    if not isinstance(target, AsyncConnection):
        target = await target.connection()
    process = _process(target, name, until)
    step = next(process)
    try:
        while True:
            try:
                answer = await _answer_async(target, step)
            except Exception as error:
                step = process.throw(error)
            else:
                step = process.send(answer)
    except StopIteration:
        return


def _process(connection: Any, name: str, until: float) -> Taking:
    if connection.closed:
        raise ClientClosed("the connection is closed")
    dialect = connection.dialect.name
    if dialect in PROCESSES:
        return PROCESSES[dialect](name, until)
    if dialect == "sqlite":
        raise NotApplied(
            "SQLite has one lock, for all who write: begin the transaction with BEGIN IMMEDIATE, "
            "or use leaselock.Client() for locks with names"
        )
    raise NotApplied(f"{dialect} has no lock of this kind here; {', '.join(PROCESSES)} have one")


def _answer(connection: sqlalchemy.Connection, step: Step) -> Any:
    if isinstance(step, Ask):
        result = connection.execute(sqlalchemy.text(step.statement), step.parameters)
        return result.first() if result.returns_rows else None
    if isinstance(step, Pause):
        # Nothing wakes a transaction of the user's: it asks again.
        return time.sleep(step.seconds)
    return _arrange(connection, step)


async def _answer_async(connection: AsyncConnection, step: Step) -> Any:
    if isinstance(step, Ask):
        result = await connection.execute(sqlalchemy.text(step.statement), step.parameters)
        return result.first() if result.returns_rows else None
    if isinstance(step, Pause):
        from asyncio import sleep

        return await sleep(step.seconds)
    return await connection.run_sync(_arrange, step)


def _arrange(connection: sqlalchemy.Connection, step: Make | Autocommit | Invalidate) -> Any:
    if isinstance(step, Make):
        return make(connection, step.name)
    if isinstance(step, Invalidate):
        return connection.invalidate()
    return getattr(connection.connection.dbapi_connection, "autocommit", None)


def make(connection: sqlalchemy.Connection, name: str) -> None:
    """See to it that the name has its row, by a connection that no pool lends.

    From the caller's pool it could be waited for in vain, while all who have one wait like us; and
    a pool of one connection would lend the caller's own.
    """
    made = _made.setdefault(connection.engine.pool, set())
    if name in made:
        return
    pool = connection.engine.pool.recreate()
    try:
        _make(pool, name)
    except _errors_of(connection) as error:
        code = error.args[0] if error.args else None
        if code in mysql.NOT_IN_TIME:
            return  # it is being made in a transaction, which has it locked as well
        missing = code == mysql.NO_TABLE
        reason = mysql.no_table() if missing else f"the lock's row could not be made: {error}"
        raise NotApplied(reason) from error
    finally:
        pool.dispose()
    if len(made) >= MOST_NAMES:
        made.clear()
    made.add(name)


def _errors_of(connection: sqlalchemy.Connection) -> type[Exception]:
    errors: type[Exception] = connection.dialect.loaded_dbapi.Error
    return errors


def _make(pool: sqlalchemy.Pool, name: str) -> None:
    connection = pool.connect()
    row = (name.encode().hex(),)
    try:
        cursor = connection.cursor()
        cursor.execute("SELECT name FROM leaselock_row WHERE name = UNHEX(%s)", row)
        # Only if need be: where the row is locked, an INSERT IGNORE of it would wait.
        if cursor.fetchone() is None:
            cursor.execute("SET innodb_lock_wait_timeout = 1")
            cursor.execute("INSERT IGNORE INTO leaselock_row (name) VALUES (UNHEX(%s))", row)
            connection.commit()
        cursor.close()
    finally:
        connection.invalidate()
