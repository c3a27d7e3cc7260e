"""The two conditional writes, for each kind of connection that a caller may have."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, overload

from leaselock.optimistic.condition import fenced, handle, versioned
from leaselock.optimistic.plain import Plain, driver_of

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
    """A connection as PEP 249 has it."""

    def cursor(self) -> Any:
        """What statements are run by."""
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
    """Write a row if it still has the version *expected*; its new version, which is one more.

    *target* is a Connection or a Session of SQLAlchemy, or any DB-API connection. With an
    AsyncConnection or AsyncSession the same call is awaited. It runs ``UPDATE … SET …, version =
    expected + 1 WHERE key AND version = expected`` in the caller's transaction, which the caller
    commits.

    *table* is its name ("schema.table" if need be); with SQLAlchemy also a Table or a mapped
    class, and then *values* may be SQL expressions. On a plain connection names are quoted, so
    they are written as the database keeps them. *key* must name one row. *column* is an integer
    that is never NULL, and that every writer of the row raises.

    Raises StaleVersion when somebody has changed the row, RowMissing when there is none; then
    roll back, read again and decide again (`retry_on_conflict`). Raises Refused when the version
    is NULL or a trigger prevents the write, ValueError when the key matches several rows: they
    have been written, so roll back.
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
    """Write a row unless a newer holder of the lock has written it; the token, which it has then.

    *token* is `lease.token`. It runs ``UPDATE … SET …, fence = :token WHERE key AND fence <=
    :token``, so one holder may write as often as it likes, and one that has lost its lock without
    knowing cannot overwrite the work of the next. A NULL fence is older than every token. With no
    *values* it only raises the fence: from then on older holders are refused.

    With *once* the condition is ``fence < :token``: each grant writes the row at most once. So a
    write whose outcome is unknown can be sent again, although it adds something.

    Target, table, key and values are as for `compare_and_set`; all tokens in one column must come
    from one lock. Raises FenceRejected when a newer token is there (with *once*: or the same),
    RowMissing when there is no row, ValueError for a key that matches several.
    The technique is Kleppmann's, "How to do distributed locking", 2016.
    """
    return _perform(target, fenced(table, key, values, token, column, once))


def _perform(target: Any, write: Write) -> int | Coroutine[Any, Any, int]:
    if any(cls.__module__.partition(".")[0] == "sqlalchemy" for cls in type(target).__mro__):
        from leaselock.optimistic import alchemy

        return (alchemy.perform_async if alchemy.is_async(target) else alchemy.perform)(
            target, write
        )
    driver = driver_of(target)
    if driver is None or not hasattr(target, "cursor") or iscoroutinefunction(target.commit):
        raise TypeError(
            "a connection of SQLAlchemy, asynchronous or not, or a blocking one of a DB-API driver "
            f"is wanted, not {type(target).__module__}.{type(target).__qualname__}"
        )
    return handle(Plain(target, driver), write)
