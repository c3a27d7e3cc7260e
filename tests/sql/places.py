"""The databases under test, and every kind of connection to them that a user may have.

A test does one thing on all of them: `Database` says how they differ, `Route` how a write
gets there.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import sqlalchemy
from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session

from leaselock.optimistic import compare_and_set, fenced_write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pymysql: Any = import_module("pymysql")


class Model(DeclarativeBase):
    """What is mapped here."""


class Account(Model):
    """The row that is written."""

    __table__ = Table(
        "account",
        MetaData(),
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("owner", String(40)),
        Column("balance", Integer, nullable=False, server_default="0"),
        Column("version", BigInteger, server_default="1"),
        Column("fence", BigInteger),
    )


account = Account.__table__
ROW: dict[str, object] = {"id": 5}


class Database(NamedTuple):
    """One of the servers, or a file."""

    kind: str
    url: str

    @property
    def address(self) -> sqlalchemy.URL:
        """Its URL in parts."""
        return sqlalchemy.make_url(self.url)

    @property
    def async_url(self) -> str:
        """The same for asyncio."""
        return self.url.replace("pymysql", "aiomysql")

    def connect(self) -> Any:
        """A connection of the driver's own."""
        if self.kind == "sqlite":
            return sqlite3.connect(str(self.address.database), timeout=10.0)
        if self.kind == "postgres":
            return psycopg.connect(self.url.replace("+psycopg", ""))
        return pymysql.connect(**self.parts)

    @contextmanager
    def table_called(self, name: str) -> Iterator[str]:
        """Make a table of that name, with a column of that name and one row; yield it quoted."""
        quote = "`" if self.kind == "mariadb" else '"'
        quoted = quote + name.replace(quote, quote * 2) + quote
        self.do(
            f"CREATE TABLE {quoted} (id INTEGER PRIMARY KEY, {quoted} VARCHAR(40), version BIGINT)",
            f"INSERT INTO {quoted} VALUES (5, 'a', 1)",
        )
        try:
            yield quoted
        finally:
            self.do(f"DROP TABLE {quoted}")

    @property
    def parts(self) -> dict[str, Any]:
        """What MySQL's drivers want to know."""
        names = {"host": "host", "port": "port", "username": "user", "password": "password"}
        where = {word: getattr(self.address, name) for name, word in names.items()}
        return {**where, "database": self.address.database}

    @contextmanager
    def plain(self) -> Iterator[Any]:
        """A connection of the driver's own, committed at the end of the body."""
        connection = self.connect()
        try:
            yield connection
            connection.commit()
        finally:
            connection.close()

    def do(self, *statements: str) -> None:
        """Carry out statements, and commit."""
        with self.plain() as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)

    def row(self, what: str = "balance, version, fence", key: int = 5) -> tuple[Any, ...] | None:
        """What one account has now."""
        with self.plain() as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT {what} FROM account WHERE id = {key}")
            found = cursor.fetchone()
            return None if found is None else tuple(found)

    def engine(self, **options: Any) -> sqlalchemy.Engine:
        """SQLAlchemy's."""
        return sqlalchemy.create_engine(self.url, **options)


@contextmanager
def plain(database: Database) -> Iterator[Any]:
    """A DB-API connection."""
    with database.plain() as connection:
        yield connection


@contextmanager
def core(database: Database) -> Iterator[Any]:
    """A Connection of SQLAlchemy."""
    engine = database.engine()
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def session(database: Database) -> Iterator[Any]:
    """A Session."""
    engine = database.engine()
    try:
        with Session(engine) as opened, opened.begin():
            yield opened
    finally:
        engine.dispose()


@asynccontextmanager
async def async_plain(database: Database) -> AsyncIterator[Any]:
    """An AsyncConnection of psycopg."""
    async with await psycopg.AsyncConnection.connect(
        database.url.replace("+psycopg", "")
    ) as connection:
        yield connection


@asynccontextmanager
async def async_core(database: Database) -> AsyncIterator[Any]:
    """An AsyncConnection."""
    engine = create_async_engine(database.async_url)
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def async_session(database: Database) -> AsyncIterator[Any]:
    """An AsyncSession."""
    engine = create_async_engine(database.async_url)
    try:
        async with AsyncSession(engine) as opened, opened.begin():
            yield opened
    finally:
        await engine.dispose()


class Route(NamedTuple):
    """How a write gets to the database."""

    name: str
    opened: Callable[[Database], Any]
    table: Any = "account"
    coroutine: bool = False

    def compare(self, database: Database, values: Any, expected: int, key: Any = ROW) -> int:
        """`compare_and_set` in a transaction of its own."""
        return self._run(database, compare_and_set, key, values, expected=expected)

    def fence(self, database: Database, values: Any, token: int, **options: Any) -> int:
        """`fenced_write` in a transaction of its own."""
        return self._run(database, fenced_write, ROW, values, token=token, **options)

    def _run(self, database: Database, write: Any, *args: Any, **options: Any) -> int:
        if self.coroutine:
            return asyncio.run(self._await(database, write, *args, **options))
        with self.opened(database) as target:
            number: int = write(target, self.table, *args, **options)
        return number

    async def _await(self, database: Database, write: Any, *args: Any, **options: Any) -> int:
        async with self.opened(database) as target:
            number: int = await write(target, self.table, *args, **options)
        return number


ROUTES = [
    Route("plain", plain),
    Route("async-plain", async_plain, coroutine=True),
    Route("core", core, account),
    Route("core-text", core),
    Route("session", session, account),
    Route("session-class", session, Account),
    Route("async-core", async_core, account, coroutine=True),
    Route("async-session", async_session, Account, coroutine=True),
]
