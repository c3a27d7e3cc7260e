"""Carries out the steps of `steps` on a connection of a driver: psycopg, PyMySQL, Django's.

A connection of Django is the driver's connection, with Django's transaction on it. The drivers
psycopg2 and MySQLdb are here because Django may use them. What a driver
does with an interrupted statement is left to it: psycopg and psycopg2 cancel it, after which the
transaction has to be rolled back.
"""

from __future__ import annotations

import re
import ssl
import sys
import time
from contextlib import closing
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from leaselock._backends.sql.given_connections import driver_of, raw
from leaselock.errors import ClientClosed, NotApplied
from leaselock.sql import mysql, postgres
from leaselock.sql.steps import CreateRow, Execute, Sleep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leaselock.sql.steps import Autocommit, Invalidate, Step, Steps

PROCESSES = {
    "psycopg": postgres.take,
    "psycopg2": postgres.take,
    "pymysql": mysql.take,
    "MySQLdb": mysql.take,
}
MOST_NAMES = 10_000
# Statements are written for SQLAlchemy; `::` is a cast.
PARAMETER = re.compile(r"(?<!:):(\w+)")

# Names whose rows are known to exist, of the database that they are in.
_made: set[tuple[object, ...]] = set()


def is_supported(target: Any) -> bool:
    """Whether it is a connection of one of these drivers, or of Django."""
    # A connection of Django connects when it is used.
    return type(target).__module__.partition(".")[0] == "django" or driver_of(target) in PROCESSES


def is_async(target: Any) -> bool:
    """Whether its methods are awaited."""
    return iscoroutinefunction(getattr(target, "rollback", None))


def take(target: Any, name: str, until: float) -> None:
    """Take the lock on a blocking connection."""
    connection = raw(target)
    steps = _steps(connection, name, until)
    step = next(steps)
    try:
        while True:
            try:
                answer = _answer(connection, step, target)
            except Exception as error:
                step = steps.throw(_marked(connection, error))
            else:
                step = steps.send(answer)
    except StopIteration:
        return


async def take_async(connection: Any, name: str, until: float) -> None:
    """Take the lock on an asynchronous connection of psycopg."""
    steps = _steps(connection, name, until)
    step = next(steps)
    try:
        while True:
            try:
                answer = await _answer_async(connection, step)
            except Exception as error:
                step = steps.throw(_marked(connection, error))
            else:
                step = steps.send(answer)
    except StopIteration:
        return


def _steps(connection: Any, name: str, until: float) -> Steps:
    driver = driver_of(connection) or ""
    if driver == "sqlite3":
        raise NotApplied(
            "SQLite has one lock, for all who write: begin the transaction with BEGIN IMMEDIATE, "
            "or use leaselock.Client() for locks with names"
        )
    if driver not in PROCESSES:
        raise NotApplied(f"{driver} has no lock of this kind here; {', '.join(PROCESSES)} have one")
    if _is_closed(connection):
        raise ClientClosed("the connection is closed")
    return PROCESSES[driver](name, until)


def _is_closed(connection: Any) -> bool:
    """Whether the driver has closed it, or has lost it."""
    closed = getattr(connection, "closed", None)
    return bool(not getattr(connection, "open", True) if closed is None else closed)


def _marked(connection: Any, error: Exception) -> Exception:
    """The error, with what SQLAlchemy says of errors that end the connection."""
    if _is_closed(connection):
        error.connection_invalidated = True  # type: ignore[attr-defined]
    return error


def _answer(connection: Any, step: Step, target: Any) -> Any:
    if isinstance(step, Execute):
        with closing(connection.cursor(**_rows(connection))) as cursor:
            cursor.execute(*_text(step))
            return cursor.fetchone() if cursor.description else None
    if isinstance(step, Sleep):
        # A transaction gets no wake-up, so it polls.
        return time.sleep(step.seconds)
    if isinstance(step, CreateRow):
        return _create_row(connection, step.name, _maker(connection, target))
    return _arranged(connection, step)


async def _answer_async(connection: Any, step: Step) -> Any:
    if isinstance(step, Execute):
        async with connection.cursor(**_rows(connection)) as cursor:
            await cursor.execute(*_text(step))
            return await cursor.fetchone() if cursor.description else None
    if isinstance(step, Sleep | CreateRow):
        raise AssertionError(f"{step} is a step of MySQL")
    return _arranged(connection, step)


def _arranged(connection: Any, step: Autocommit | Invalidate) -> Any:
    from leaselock.sql.steps import Invalidate

    if isinstance(step, Invalidate):
        return connection.close()
    return getattr(connection, "autocommit", None)


def _text(step: Execute) -> tuple[str, Any]:
    if not step.parameters:
        return step.statement, None
    return PARAMETER.sub(r"%(\1)s", step.statement.replace("%", "%%")), dict(step.parameters)


def _rows(connection: Any) -> dict[str, object]:
    """A cursor that makes tuples, whatever the connection is set to."""
    driver = driver_of(connection)
    if driver == "psycopg":
        return {"row_factory": sys.modules["psycopg.rows"].tuple_row}
    if driver == "psycopg2":
        return {"cursor_factory": sys.modules["psycopg2.extensions"].cursor}
    if driver == "pymysql":
        return {"cursor": sys.modules["pymysql.cursors"].Cursor}
    return {"cursorclass": sys.modules["MySQLdb.cursors"].Cursor}


def _maker(connection: Any, target: Any) -> Callable[[], Any]:
    """What makes another connection to the same database."""
    if target is not connection:  # Django's
        return lambda: target.get_new_connection(target.get_connection_params())
    if driver_of(connection) != "pymysql":
        raise NotApplied("a row is locked by connections of PyMySQL, Django and SQLAlchemy only")
    words = {name: getattr(connection, name) for name in ("host", "port", "user", "password")}
    words["unix_socket"] = connection.unix_socket
    if connection.ssl and isinstance(connection._sock, ssl.SSLSocket):
        words["ssl"] = connection.ctx
    connect = sys.modules["pymysql"].connect
    return lambda: connect(database=connection.db, **words)


def _create_row(connection: Any, name: str, make: Callable[[], Any]) -> None:
    key = (*_place(connection), name)
    if key in _made:
        return
    errors: type[Exception] = sys.modules[driver_of(connection) or ""].Error
    with mysql.row_errors(errors) as made:
        other = make()
        try:
            mysql.make_row(other, name)
            made.append(name)
        finally:
            other.close()
    if made:
        if len(_made) >= MOST_NAMES:
            _made.clear()
        _made.add(key)


def _place(connection: Any) -> Iterable[object]:
    """The database of a connection. It may have been made anew since: then MySQL's steps do."""
    return [getattr(connection, name, None) for name in ("host", "port", "unix_socket", "db")]
