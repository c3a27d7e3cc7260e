"""What is special to SQLAlchemy: expressions, mapped classes, what sessions have loaded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from sqlalchemy import Column, Integer, MetaData, String, Table
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    mapped_column,
    scoped_session,
    sessionmaker,
)
from sqlalchemy.orm.exc import StaleDataError
from tests.sql.places import Account, account, core, session

from leaselock.errors import FenceRejected, RowNotFound, StaleVersion
from leaselock.optimistic import compare_and_set, fenced_write

if TYPE_CHECKING:
    from tests.sql.places import Database

ROW: dict[str, object] = {"id": 5}


class Model(DeclarativeBase):
    """What is mapped here."""


class Versioned(Model):
    """The account with SQLAlchemy's own version counter, and an attribute of another name."""

    __tablename__ = "account"
    id = mapped_column(Integer, primary_key=True)
    money = mapped_column("balance", Integer)
    version = mapped_column(Integer)
    fence = mapped_column(Integer)
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012


def test_values_may_be_expressions(database: Database) -> None:
    with core(database) as connection:
        values: dict[str, object] = {"balance": account.c.balance - 10, "owner": None}
        compare_and_set(connection, account, ROW, values, expected=1)
        lower = {"owner": sqlalchemy.func.lower("EVE")}
        fenced_write(connection, "account", ROW, lower, token=3)
    assert database.row("owner, balance, version, fence") == ("eve", 90, 2, 3)


def test_columns_go_by_their_keys_and_schemas_before_dots(postgres: Database) -> None:
    table = Table(
        "account",
        MetaData(),
        Column("id", Integer, key="number"),
        Column("owner", String),
        Column("version", Integer),
        schema="public",
    )
    with core(postgres) as connection:
        compare_and_set(connection, table, {"number": 5}, {"owner": "eve"}, expected=1)
        compare_and_set(connection, "public.account", ROW, {}, expected=2)
        with pytest.raises(StaleVersion, match=r"^public\.account "):
            compare_and_set(connection, table, {"number": 5}, {}, expected=2)


@pytest.mark.parametrize("target", [account, Account, Versioned])
def test_an_unknown_column_is_named(sqlite: Database, target: object) -> None:
    with session(sqlite) as opened:
        for options in ({"key": {"colour": 1}}, {"values": {"colour": 1}}, {"column": "colour"}):
            arguments: dict[str, Any] = {"key": ROW, "values": {}, "expected": 1, **options}
            with pytest.raises(ValueError, match="account has no column 'colour'"):
                compare_and_set(opened, target, **arguments)
        with pytest.raises(TypeError, match="a table is a Table, a mapped class or a str"):
            compare_and_set(opened, 7, ROW, {}, expected=1)


def test_what_is_no_connection_is_named(sqlite: Database) -> None:
    engine: Any = sqlite.engine()
    for thing in (engine, engine.url):
        with pytest.raises(TypeError, match=r"not (Engine|URL): with engine\.begin\(\)"):
            compare_and_set(thing, account, ROW, {}, expected=1)
    engine.dispose()


def test_an_object_that_is_loaded_is_brought_up_to_date(database: Database) -> None:
    with session(database) as opened:
        loaded = opened.get(Account, 5)
        other = opened.get(Account, 6)
        loaded.owner = "eve"  # is written before, as by every statement of the session
        new: dict[str, object] = {"balance": 90}
        compare_and_set(opened, Account, ROW, new, expected=loaded.version)
        assert (loaded.owner, loaded.balance, loaded.version) == ("eve", 90, 2)
        assert (other.balance, other.version) == (100, 1)
        halved: dict[str, object] = {"balance": account.c.balance - 45}
        fenced_write(opened, Account, ROW, halved, token=4)
        assert (loaded.balance, loaded.fence) == (45, 4)
        assert loaded not in opened.dirty
    assert database.row("owner, balance, version, fence") == ("eve", 45, 2, 4)


def test_an_object_is_left_alone_by_a_write_that_is_refused(database: Database) -> None:
    with session(database) as opened:
        loaded = opened.get(Account, 5)
        with pytest.raises(StaleVersion):
            compare_and_set(opened, Account, ROW, {"balance": 90}, expected=9)
        assert (loaded.balance, loaded.version) == (100, 1)
        fenced_write(opened, Account, {"id": 5, "owner": "ann"}, {}, token=4)
        with pytest.raises(FenceRejected):
            fenced_write(opened, Account, ROW, {"balance": 90}, token=3)
        assert loaded.balance == 100


def test_version_id_col_and_compare_and_set_respect_each_other(database: Database) -> None:
    with session(database) as opened:
        loaded = opened.get(Versioned, 5)
        compare_and_set(opened, Versioned, ROW, {"money": 90}, expected=1)
        loaded.money = 80
        opened.flush()
        assert loaded.version == 3
        with pytest.raises(StaleVersion):
            compare_and_set(opened, Versioned, ROW, {"money": 70}, expected=2)
        compare_and_set(opened, "account", ROW, {"balance": 60}, expected=3)  # behind its back
        loaded.money = 50
        with pytest.raises(StaleDataError):
            opened.flush()
        opened.rollback()


def test_scoped_sessions_are_sessions(postgres: Database) -> None:
    engine = postgres.engine()
    scoped = scoped_session(sessionmaker(engine))
    assert compare_and_set(scoped, Account, ROW, {"balance": 1}, expected=1) == 2
    scoped.commit()
    scoped.remove()
    engine.dispose()

    async def main() -> None:
        engine = create_async_engine(postgres.async_url)
        opened: Any = async_scoped_session(
            async_sessionmaker(engine), scopefunc=asyncio.current_task
        )
        assert await compare_and_set(opened, Account, ROW, {"balance": 2}, expected=2) == 3
        await opened.commit()
        await opened.remove()
        await engine.dispose()

    asyncio.run(main())
    assert postgres.row() == (2, 3, None)


def test_a_savepoint_takes_the_write_back(database: Database) -> None:
    with core(database) as connection:
        compare_and_set(connection, account, ROW, {"balance": 1}, expected=1)
        nested = connection.begin_nested()
        compare_and_set(connection, account, ROW, {"balance": 2}, expected=2)
        nested.rollback()
        compare_and_set(connection, account, ROW, {"owner": "eve"}, expected=2)
    assert database.row() == (1, 3, None)


def test_a_transaction_that_may_only_read_is_refused_by_the_database(postgres: Database) -> None:
    with core(postgres) as connection:
        connection.execute(sqlalchemy.text("SET TRANSACTION READ ONLY"))
        with pytest.raises(sqlalchemy.exc.InternalError, match="read-only transaction"):
            compare_and_set(connection, account, ROW, {"balance": 1}, expected=1)
        connection.rollback()


def test_a_row_that_is_gone_is_missing(database: Database) -> None:
    with session(database) as opened:
        loaded = opened.get(Account, 5)
        opened.execute(sqlalchemy.delete(account).where(account.c.id == 5))
        with pytest.raises(RowNotFound):
            compare_and_set(opened, Account, ROW, {"balance": 1}, expected=loaded.version)
