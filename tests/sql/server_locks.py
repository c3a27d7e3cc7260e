"""Sees from outside what transactions have locked and who waits; takes a lock in any colour."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy
from testkit.servers.mariadb import MariaDB
from testkit.servers.process import eventually

from leaselock.errors import AcquireTimeout
from leaselock.sql import lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from testkit.servers.postgres import Postgres
    from tests.sql.places import Database, Route

LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted = "


class ServerLocks(NamedTuple):
    """One server, asked by its administrator."""

    kind: str
    server: Postgres | MariaDB

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """The rows that a statement brings."""
        return self.server.query(text)

    def held(self) -> int:
        """How many advisory locks are held; in MariaDB, how many transactions are open."""
        if isinstance(self.server, MariaDB):
            return len(self.server.transactions())
        count: int = self.query(LOCKS + "true")[0][0]
        return count

    def waiting(self) -> int:
        """How many wait for one."""
        if isinstance(self.server, MariaDB):
            return len(self.server.blocked_transactions())
        count: int = self.query(LOCKS + "false")[0][0]
        return count

    def until_waiting(self, count: int = 1) -> None:
        """Return when that number of sessions waits."""
        eventually(lambda: self.waiting() == count)

    def until_blocked(self, count: int = 1) -> None:
        """Return when that number of sessions waits for rows."""
        rows = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        if self.kind == "mariadb":
            self.until_waiting(count)
        else:
            eventually(lambda: self.query(rows) == [(count,)])

    def until_nothing_is_held(self) -> None:
        """Return when nothing is left; the server may need a moment to notice."""
        eventually(lambda: self.held() == 0, 10.0)


def free(engine: sqlalchemy.Engine, name: str) -> bool:
    """Whether another transaction could have the lock."""
    try:
        with engine.begin() as connection, lock(connection, name, timeout=0):
            return True
    except AcquireTimeout:
        return False


@asynccontextmanager
async def opened(way: Route, database: Database) -> AsyncIterator[Any]:
    """A connection or session with a transaction, in the way's colour."""
    if way.coroutine:
        async with way.opened(database) as target:
            yield target
    else:
        with way.opened(database) as target:
            yield target


@asynccontextmanager
async def locked(target: Any, name: str, **options: Any) -> AsyncIterator[None]:
    """`lock`, in the target's colour."""
    manager: Any = lock(target, name, **options)
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            assert value is None
            yield
    else:
        with manager as value:
            assert value is None
            yield


async def execute(target: Any, statement: str) -> Any:
    """The first value that a statement brings, if any."""
    if type(target).__module__.partition(".")[0] != "sqlalchemy":
        return await _execute_plain(target, statement)
    result = target.execute(sqlalchemy.text(statement))
    if inspect.isawaitable(result):
        result = await result
    return result.scalar() if result.returns_rows else None


async def _execute_plain(target: Any, statement: str) -> Any:
    """The same on a connection of a driver."""
    cursor = target.cursor()
    done = cursor.execute(statement)
    if inspect.isawaitable(done):
        await done
    row = cursor.fetchone() if cursor.description else None
    if inspect.isawaitable(row):
        row = await row
    return row[0] if row else None
