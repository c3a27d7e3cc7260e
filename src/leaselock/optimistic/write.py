"""The two conditional writes, for each kind of connection."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, overload

from leaselock._backends.sql.given_connections import driver_of, raw
from leaselock.optimistic.condition import fenced, handle, versioned
from leaselock.optimistic.plain import Plain, handle_async

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from leaselock.optimistic.condition import Write

    Blocking = Connection | Session | scoped_session[Any]
    Async = AsyncConnection | AsyncSession | async_scoped_session[Any]
    Row = Mapping[str, object]


class DbApi(Protocol):
    """A connection of PEP 249."""

    def cursor(self) -> Any:
        """A cursor."""
        ...

    def commit(self) -> None:
        """End the transaction."""
        ...


@overload
def compare_and_set(
    target: DbApi, table: object, key: Row, values: Row, *, expected: int, column: str = ...
) -> int: ...
@overload
def compare_and_set(
    target: Blocking, table: object, key: Row, values: Row, *, expected: int, column: str = ...
) -> int: ...
@overload
def compare_and_set(
    target: Async, table: object, key: Row, values: Row, *, expected: int, column: str = ...
) -> Coroutine[Any, Any, int]: ...
def compare_and_set(
    target: Any,
    table: object,
    key: Row,
    values: Row,
    *,
    expected: int,
    column: str = "version",
) -> int | Coroutine[Any, Any, int]:
    """Write a row if it still has the version *expected*. Returns its new version, one more.

    *target* is a Connection or a Session of SQLAlchemy, a connection of Django, or any DB-API
    connection. With an AsyncConnection or AsyncSession of SQLAlchemy, or an AsyncConnection of
    psycopg, the same call is awaited. It runs ``UPDATE … SET …, version =
    expected + 1 WHERE key AND version = expected`` in the caller's transaction, which the caller
    commits.

    *table* is its name ("schema.table" if need be); with SQLAlchemy also a Table or a mapped
    class, and then *values* may be SQL expressions. On a plain connection names are quoted, so
    write them as the database stores them. *key* must identify one row. *column* is an integer
    that is never NULL, and that every writer of the row increments.

    Raises StaleVersion if the row was changed, RowNotFound if there is none; then roll back, read
    again and decide again (`retry_on_conflict`). Raises NotApplied if the version is NULL or a
    trigger prevents the write, ValueError if the key matches several rows: these were written, so
    roll back.
    """
    return _perform(target, versioned(table, key, values, expected, column))


@overload
def fenced_write(
    target: DbApi,
    table: object,
    key: Row,
    values: Row,
    *,
    token: int,
    column: str = ...,
    once: bool = ...,
) -> int: ...
@overload
def fenced_write(
    target: Blocking,
    table: object,
    key: Row,
    values: Row,
    *,
    token: int,
    column: str = ...,
    once: bool = ...,
) -> int: ...
@overload
def fenced_write(
    target: Async,
    table: object,
    key: Row,
    values: Row,
    *,
    token: int,
    column: str = ...,
    once: bool = ...,
) -> Coroutine[Any, Any, int]: ...
def fenced_write(
    target: Any,
    table: object,
    key: Row,
    values: Row,
    *,
    token: int,
    column: str = "fence",
    once: bool = False,
) -> int | Coroutine[Any, Any, int]:
    """Write a row unless a newer holder of the lock has written it. Returns the token.

    *token* is `lease.token`. It runs ``UPDATE … SET …, fence = :token WHERE key AND fence <=
    :token``. So one holder may write several times, and a holder that has lost the lock without
    noticing cannot overwrite a later holder's work. A NULL fence is older than every token.
    Without *values* it only raises the fence: from then on older holders are refused.

    With *once* the condition is ``fence < :token``: each grant writes the row at most once. So a
    write whose outcome is unknown can be repeated, even if it is not idempotent.

    Target, table, key and values are as for `compare_and_set`; all tokens in one column must come
    from one lock. Raises FenceRejected if the row has a newer token (with *once*: or the same),
    RowNotFound if there is no row, ValueError if the key matches several.
    The technique is from Kleppmann, "How to do distributed locking", 2016.
    """
    return _perform(target, fenced(table, key, values, token, column, once))


def _perform(target: Any, write: Write) -> int | Coroutine[Any, Any, int]:
    if any(cls.__module__.partition(".")[0] == "sqlalchemy" for cls in type(target).__mro__):
        from leaselock.optimistic import alchemy

        return (alchemy.perform_async if alchemy.is_async(target) else alchemy.perform)(
            target, write
        )
    target = raw(target)
    driver = driver_of(target)
    asynchronous = iscoroutinefunction(getattr(target, "commit", None))
    if driver is None or not hasattr(target, "cursor") or (asynchronous and driver != "psycopg"):
        raise TypeError(
            "a connection of SQLAlchemy or of psycopg, asynchronous or not, of Django, or a "
            "blocking one of a DB-API driver is wanted, not "
            f"{type(target).__module__}.{type(target).__qualname__}"
        )
    if asynchronous:
        return handle_async(target, driver, write)
    return handle(Plain(target, driver), write)
