"""Unusual uses: odd names, savepoints, failed transactions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.sql.places import Account, account, core, session
from tests.sql.server_locks import free
from tests.sql.test_plain import NAMES

from leaselock.errors import AcquireTimeout, StaleVersion
from leaselock.optimistic import compare_and_set
from leaselock.sql import lock

if TYPE_CHECKING:
    from tests.sql.places import Database
    from tests.sql.server_locks import ServerLocks

ROW: dict[str, object] = {"id": 5}
NAME = "order:5"


@pytest.mark.parametrize("name", NAMES)
def test_sqlalchemy_quotes_names_as_well(database: Database, name: str) -> None:
    with database.table_called(name), core(database) as connection:
        new: dict[str, object] = {name: "%s?:1"}
        compare_and_set(connection, name, ROW, new, expected=1)
        with pytest.raises(StaleVersion):
            compare_and_set(connection, name, new, {}, expected=1)
        assert compare_and_set(connection, name, {**ROW, **new}, {}, expected=2) == 3


def test_a_mapped_class_on_a_bare_connection(database: Database) -> None:
    with core(database) as connection:
        assert compare_and_set(connection, Account, ROW, {"balance": 1}, expected=1) == 2
        with pytest.raises(StaleVersion):
            compare_and_set(connection, Account, ROW, {"balance": 1}, expected=1)
    assert database.row() == (1, 2, None)


def test_a_conflict_inside_a_savepoint_costs_only_that(database: Database) -> None:
    with session(database) as opened:
        opened.execute(sqlalchemy.update(account).where(account.c.id == 6).values(balance=7))
        loaded = opened.get(Account, 5)
        nested = opened.begin_nested()
        loaded.owner = "eve"
        with pytest.raises(StaleVersion):
            compare_and_set(opened, Account, ROW, {"balance": 1}, expected=9)
        nested.rollback()
        assert loaded.owner == "ann"
        compare_and_set(opened, Account, ROW, {"balance": 2}, expected=1)
    assert database.row("owner, balance, version") == ("ann", 2, 2)
    assert database.row("balance", key=6) == (7,)


def test_a_session_that_has_failed_says_so_itself(
    database: Database, server_locks: ServerLocks
) -> None:
    engine = database.engine()
    with Session(engine) as opened:
        opened.add(Account(id=5))
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            opened.flush()
        with pytest.raises(sqlalchemy.exc.PendingRollbackError), lock(opened, NAME):
            pytest.fail("it was granted")
        opened.rollback()
        if database.kind == "postgres":
            with pytest.raises(sqlalchemy.exc.ProgrammingError):
                opened.execute(text("SELECT * FROM no_such_table"))
            with pytest.raises(sqlalchemy.exc.InternalError, match="aborted"), lock(opened, NAME):
                pytest.fail("it was granted")
            opened.rollback()
        compare_and_set(opened, Account, ROW, {"balance": 2}, expected=1)
        opened.commit()
    engine.dispose()
    server_locks.until_nothing_is_held()
    assert database.row("balance") == (2,)


def test_locks_in_savepoints_of_sessions_and_many_at_once(
    database: Database, server_locks: ServerLocks
) -> None:
    engine = database.engine()
    names = [f"n{number}" for number in range(20)]
    with Session(engine) as opened, opened.begin():
        for name in names:
            with opened.begin_nested(), lock(opened, name, timeout=1):
                opened.execute(text("SELECT 1"))
        assert not any(free(engine, name) for name in names)
    assert all(free(engine, name) for name in names)
    engine.dispose()
    server_locks.until_nothing_is_held()


def test_a_wait_in_vain_inside_a_savepoint(database: Database, server_locks: ServerLocks) -> None:
    engine = database.engine()
    with engine.begin() as holder, lock(holder, NAME), engine.begin() as connection:
        with lock(connection, "mine", timeout=0):
            nested = connection.begin_nested()
            connection.execute(text("UPDATE account SET balance = 1 WHERE id = 5"))
            with pytest.raises(AcquireTimeout), lock(connection, NAME, timeout=0.05):
                pytest.fail("it is held")
            nested.commit()
        assert not free(engine, "mine")
    assert database.row("balance") == (1,)
    engine.dispose()
    server_locks.until_nothing_is_held()


def test_a_session_inside_run_sync(database: Database, server_locks: ServerLocks) -> None:
    async def main() -> None:
        engine = create_async_engine(database.async_url)

        def work(opened: Session) -> int:
            with lock(opened, NAME, timeout=1):
                return compare_and_set(opened, Account, ROW, {"balance": 1}, expected=1)

        async with AsyncSession(engine) as opened, opened.begin():
            assert await opened.run_sync(work) == 2
        await engine.dispose()

    asyncio.run(main())
    assert database.row() == (1, 2, None)
    server_locks.until_nothing_is_held()


def test_a_version_beyond_all_numbers(database: Database) -> None:
    most = 2**63 - 1
    database.do(f"UPDATE account SET version = {most}")
    with core(database) as connection:
        with pytest.raises((sqlalchemy.exc.DBAPIError, OverflowError)):
            compare_and_set(connection, account, ROW, {"balance": 1}, expected=most)
        connection.rollback()
    assert database.row("balance, version") == (100, most)
