"""Carries out the steps of `steps` on a connection of SQLAlchemy, blocking or asynchronous.

After an interrupt or a cancellation no further statements are sent: SQLAlchemy has closed the
connection by then, and its locks are released.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.util import await_only

from leaselock.errors import ClientClosed, NotApplied
from leaselock.sql import mysql, postgres
from leaselock.sql.steps import CreateRow, Execute, Invalidate, Sleep

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.sql.steps import Autocommit, Step, Steps

PROCESSES = {"postgresql": postgres.take, "mysql": mysql.take, "mariadb": mysql.take}
MOST_NAMES = 10_000

# Names whose rows are known to exist, so that each is created at most once per process.
_made: WeakKeyDictionary[sqlalchemy.Pool, set[str]] = WeakKeyDictionary()


def is_async(target: object) -> bool:
    """Whether it is an asynchronous connection or session."""
    return isinstance(target, AsyncConnection | AsyncSession | async_scoped_session)


def take(target: Any, name: str, until: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Take the lock on a blocking connection or session."""
    if isinstance(target, orm.Session | orm.scoped_session):
        target = target.connection()
    if not isinstance(target, sqlalchemy.Connection):
        raise TypeError(
            f"a Connection or a Session is wanted, not {type(target).__name__}: "
            "with engine.begin() as connection: …"
        )
    steps = _steps(target, name, until)
    step = next(steps)
    try:
        while True:
            try:
                answer = _answer(target, step, sleep)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration:
        return


async def take_async(target: Any, name: str, until: float) -> None:
    """Take the lock on an asynchronous connection or session."""
    if not isinstance(target, AsyncConnection):
        target = await target.connection()
    await target.run_sync(take, name, until, _sleep_in_task)


def _sleep_in_task(seconds: float) -> None:
    from asyncio import sleep

    await_only(sleep(seconds))


def _steps(connection: Any, name: str, until: float) -> Steps:
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


def _answer(connection: sqlalchemy.Connection, step: Step, sleep: Callable[[float], None]) -> Any:
    if isinstance(step, Execute):
        result = connection.execute(sqlalchemy.text(step.statement), step.parameters)
        return result.first() if result.returns_rows else None
    if isinstance(step, Sleep):
        # A transaction gets no wake-up, so it polls.
        return sleep(step.seconds)
    return _arrange(connection, step)


def _arrange(connection: sqlalchemy.Connection, step: CreateRow | Autocommit | Invalidate) -> Any:
    if isinstance(step, CreateRow):
        return create_row(connection, step.name)
    if isinstance(step, Invalidate):
        return connection.invalidate()
    return getattr(connection.connection.dbapi_connection, "autocommit", None)


def create_row(connection: sqlalchemy.Connection, name: str) -> None:
    """Create the row of the name, if it is missing, on a connection that belongs to no pool.

    The caller's pool could be exhausted by callers that wait for the same lock, and a pool of one
    connection would return the caller's own.
    """
    made = _made.setdefault(connection.engine.pool, set())
    if name in made:
        return
    pool = connection.engine.pool.recreate()
    try:
        if not _make(pool, name, _errors_of(connection)):
            return
    finally:
        pool.dispose()
    if len(made) >= MOST_NAMES:
        made.clear()
    made.add(name)


def _errors_of(connection: sqlalchemy.Connection) -> type[Exception]:
    errors: type[Exception] = connection.dialect.loaded_dbapi.Error
    return errors


def _make(pool: sqlalchemy.Pool, name: str, errors: type[Exception]) -> bool:
    with mysql.row_errors(errors) as made:
        connection = pool.connect()
        try:
            mysql.make_row(connection, name)
            made.append(name)
        finally:
            connection.invalidate()
    return bool(made)
