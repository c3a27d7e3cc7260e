"""A lock that lasts as long as the caller's transaction, on the connection that it has open.

    with engine.begin() as connection, leaselock.sql.lock(connection, "order:5"):
        ...                                     # one transaction at a time gets here

Invariant: the lock belongs to the transaction. It ends when the transaction commits or rolls back,
and not before. `lock` commits nothing, rolls back nothing, and does nothing at the end of its body.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, overload

from leaselock._core.client.validation import checked_name, checked_timeout
from leaselock._core.contract.effects import FOREVER
from leaselock._drivers.system_env import now
from leaselock.sql import plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import ModuleType

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    Blocking = Connection | Session | scoped_session[Any]
    Async = AsyncConnection | AsyncSession | async_scoped_session[Any]

    class BlockingDriver(Protocol):
        """A connection of psycopg, PyMySQL or Django."""

        def cursor(self) -> Any: ...
        def rollback(self) -> None: ...

    class AsyncDriver(Protocol):
        """An asynchronous connection of psycopg."""

        def cursor(self) -> Any: ...
        async def rollback(self) -> None: ...


__all__ = ["lock"]


@overload
def lock(
    target: Blocking | BlockingDriver, name: str, *, timeout: float | None = ...
) -> AbstractContextManager[None]: ...
@overload
def lock(
    target: Async | AsyncDriver, name: str, *, timeout: float | None = ...
) -> AbstractAsyncContextManager[None]: ...
def lock(
    target: Any, name: str, *, timeout: float | None = None
) -> AbstractContextManager[None] | AbstractAsyncContextManager[None]:
    """Take the lock *name* for the rest of the transaction; a context manager for its use.

    *target* is a Connection or a Session of SQLAlchemy, or a connection of psycopg, PyMySQL or
    Django; with an asynchronous one of SQLAlchemy or psycopg, use ``async with``. If no transaction
    is open, this begins one, as any statement does; Django needs `atomic`. Another
    transaction that takes the same name waits until this one ends. A transaction may take the same
    lock again, and several locks. Take several in the same order everywhere: otherwise two
    transactions may deadlock, which the database ends with an error.

    PostgreSQL: `pg_advisory_xact_lock` with a key of 64 bits (`postgres.key`). MySQL 8 and
    MariaDB 10.6: the name's row in the table ``leaselock_row``, made by ``leaselock setup URL``.

    *timeout* is how long to wait, in seconds: None without limit, 0 not at all. The limits of the
    database (`lock_timeout`, `innodb_lock_wait_timeout`) do not apply, and are unchanged
    afterwards. A wait that times out leaves the transaction as it was.

    Raises AcquireTimeout if the lock was not free in time; InvalidName; ClientClosed for a closed
    connection; NotApplied, with the reason, if no such lock is possible: a connection that commits
    every statement, a read-only server, another database, a missing table.
    """
    checked_name(name)
    seconds = checked_timeout(timeout)
    if any(cls.__module__.partition(".")[0] == "sqlalchemy" for cls in type(target).__mro__):
        from leaselock.sql import alchemy

        taker: ModuleType = alchemy
    elif plain.is_supported(target):
        taker = plain
    else:
        raise TypeError(
            "expected a Connection or Session of SQLAlchemy, synchronous or asynchronous, or a "
            "connection of psycopg, PyMySQL or Django, not "
            f"{type(target).__module__}.{type(target).__qualname__}"
        )
    return (_locked_async if taker.is_async(target) else _locked)(taker, target, name, seconds)


@contextmanager
def _locked(taker: ModuleType, target: Any, name: str, timeout: float | None) -> Iterator[None]:
    taker.take(target, name, _deadline(timeout))
    yield


@asynccontextmanager
async def _locked_async(
    taker: ModuleType, target: Any, name: str, timeout: float | None
) -> AsyncIterator[None]:
    await taker.take_async(target, name, _deadline(timeout))
    yield


def _deadline(timeout: float | None) -> float:
    return FOREVER if timeout is None else now() + timeout
