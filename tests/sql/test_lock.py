"""The lock of a transaction: on connections, sessions, sync and async, in each database."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import scoped_session, sessionmaker
from tests.sql.places import async_core, pymysql
from tests.sql.server_locks import execute, free, locked, opened

from leaselock.errors import AcquireTimeout
from leaselock.optimistic.conflicts import is_conflict
from leaselock.sql import lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sql.places import Database, Route
    from tests.sql.server_locks import ServerLocks

NAME = "order:5"
# A statement about a table that is missing.
FAILED = (sqlalchemy.exc.ProgrammingError, psycopg.ProgrammingError, pymysql.ProgrammingError)
SETTING = {
    "postgres": ("SET lock_timeout = '7s'", "SHOW lock_timeout", "7s"),
    "mariadb": (
        "SET SESSION innodb_lock_wait_timeout = 7",
        "SELECT @@innodb_lock_wait_timeout",
        7,
    ),
}


@pytest.fixture
def engine(database: Database) -> Iterator[sqlalchemy.Engine]:
    """An engine of the user."""
    made = database.engine()
    yield made
    made.dispose()


def test_others_wait_for_the_end_of_the_transaction(
    database: Database, way: Route, server_locks: ServerLocks, engine: sqlalchemy.Engine
) -> None:
    async def main() -> None:
        async with opened(way, database) as target:
            async with locked(target, NAME):
                assert not free(engine, NAME)
                assert free(engine, NAME + "0")
                async with locked(target, NAME, timeout=0):  # one's own, again
                    assert not free(engine, NAME)
            assert not free(engine, NAME)  # until the commit

    asyncio.run(main())
    assert free(engine, NAME)
    server_locks.until_nothing_is_held()


def test_a_wait_in_vain_leaves_the_transaction_as_it_was(
    database: Database, way: Route, engine: sqlalchemy.Engine
) -> None:
    change, show, own = SETTING[database.kind]

    async def main() -> None:
        async with opened(way, database) as target:
            await execute(target, change)
            await execute(target, "UPDATE account SET balance = 1 WHERE id = 5")
            # MySQL waits for whole seconds, and spends the rest with looking.
            for timeout in (0, 0.05, *([1.05] if database.kind == "mariadb" else [])):
                with pytest.raises(AcquireTimeout, match="could not acquire 'order:5'"):
                    async with locked(target, NAME, timeout=timeout):
                        pytest.fail("it is held")
                assert await execute(target, show) == own
            await execute(target, "UPDATE account SET owner = 'eve' WHERE id = 5")

    with engine.begin() as holder, lock(holder, NAME):
        asyncio.run(main())
    assert database.row("balance, owner") == (1, "eve")


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_waiter_comes_in_after_the_commit_and_sees_it(
    database: Database,
    way: Route,
    server_locks: ServerLocks,
    engine: sqlalchemy.Engine,
    timeout: float | None,
) -> None:
    change, show, own = SETTING[database.kind]

    async def main() -> object:
        async with opened(way, database) as target:
            await execute(target, change)
            async with locked(target, NAME, timeout=timeout):
                assert await execute(target, show) == own
                return await execute(target, "SELECT balance FROM account WHERE id = 5")

    with ThreadPoolExecutor() as threads:
        with engine.begin() as holder, lock(holder, NAME):
            waiter = threads.submit(asyncio.run, main())
            server_locks.until_waiting()
            holder.execute(sqlalchemy.text("UPDATE account SET balance = 7 WHERE id = 5"))
            assert not waiter.done()
        assert waiter.result(60) == 7
    server_locks.until_nothing_is_held()


def test_an_error_of_the_body_is_the_callers_and_nothing_is_left(
    database: Database, way: Route, server_locks: ServerLocks, engine: sqlalchemy.Engine
) -> None:
    async def main() -> None:
        async with opened(way, database) as target, locked(target, NAME):
            await execute(target, "UPDATE account SET balance = 1 WHERE id = 5")
            await execute(target, "SELECT * FROM no_such_table")

    with pytest.raises(FAILED, match="no_such_table"):
        asyncio.run(main())
    server_locks.until_nothing_is_held()
    assert database.row("balance") == (100,)
    assert free(engine, NAME)


def test_an_error_that_the_body_has_caught_does_not_come_back(
    database: Database, way: Route, server_locks: ServerLocks
) -> None:
    async def main() -> None:
        async with opened(way, database) as target:
            async with locked(target, NAME):
                with pytest.raises(FAILED):
                    await execute(target, "SELECT * FROM no_such_table")
            raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        asyncio.run(main())
    server_locks.until_nothing_is_held()


def test_the_next_user_of_the_pooled_connection_has_no_lock(
    database: Database, server_locks: ServerLocks
) -> None:
    for options in ({}, {"pool_reset_on_return": None}):
        engine = database.engine(pool_size=1, max_overflow=0, **options)
        number = {"postgres": "pg_backend_pid()", "mariadb": "connection_id()"}[database.kind]
        sessions = set()
        for _ in range(3):
            with engine.connect() as connection:
                manager = lock(connection, NAME, timeout=0)
                manager.__enter__()  # and never left: the connection's end is enough
                sessions.add(connection.execute(sqlalchemy.text(f"SELECT {number}")).scalar())
            server_locks.until_nothing_is_held()
        assert len(sessions) == 1
        engine.dispose()


def test_a_commit_in_the_body_ends_the_lock(
    engine: sqlalchemy.Engine, server_locks: ServerLocks
) -> None:
    with engine.connect() as connection, lock(connection, NAME):
        connection.commit()
        server_locks.until_nothing_is_held()
        connection.execute(sqlalchemy.text("SELECT 1"))


def test_sessions_that_begin_by_themselves_and_scoped_ones(
    database: Database, engine: sqlalchemy.Engine, server_locks: ServerLocks
) -> None:
    scoped = scoped_session(sessionmaker(engine))
    with lock(scoped, NAME):
        assert not free(engine, NAME)
        scoped.rollback()
        assert free(engine, NAME)
    with lock(scoped, NAME):
        scoped.close()
    assert free(engine, NAME)

    async def main() -> None:
        coloured = create_async_engine(database.async_url)
        session = async_scoped_session(async_sessionmaker(coloured), scopefunc=asyncio.current_task)
        async with lock(session, NAME):
            assert not free(engine, NAME)
            await session.remove()
            assert free(engine, NAME)
        await coloured.dispose()

    asyncio.run(main())
    server_locks.until_nothing_is_held()


def test_a_savepoint_ends_the_lock_only_where_it_can(
    database: Database, engine: sqlalchemy.Engine, server_locks: ServerLocks
) -> None:
    with database.engine(poolclass=sqlalchemy.NullPool).begin() as connection:
        nested = connection.begin_nested()
        with lock(connection, "kept", timeout=1):
            nested.commit()
        assert not free(engine, "kept")
        nested = connection.begin_nested()
        with lock(connection, NAME):
            nested.rollback()
        # InnoDB keeps the rows that a transaction locked after a savepoint; PostgreSQL does not.
        assert free(engine, NAME) == (database.kind == "postgres")
    server_locks.until_nothing_is_held()


def test_a_cancelled_waiter_leaves_nothing(database: Database, server_locks: ServerLocks) -> None:
    async def main() -> None:
        engine = create_async_engine(database.async_url, pool_size=1, max_overflow=0)

        async def wait() -> None:
            async with engine.begin() as connection, lock(connection, NAME):
                pytest.fail("it is held")

        task = asyncio.ensure_future(wait())
        await asyncio.to_thread(server_locks.until_waiting)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with engine.begin() as connection:  # the pool has another
            assert await execute(connection, "SELECT 1") == 1
        await engine.dispose()

    other = database.engine()
    with other.begin() as holder, lock(holder, NAME):
        asyncio.run(main())
    assert free(other, NAME)
    other.dispose()
    server_locks.until_nothing_is_held()


def test_a_cancelled_body_leaves_nothing(database: Database, server_locks: ServerLocks) -> None:
    pause = {"postgres": "SELECT pg_sleep(1)", "mariadb": "SELECT sleep(1)"}[database.kind]

    async def hold(inside: asyncio.Event) -> None:
        async with async_core(database) as target, lock(target, NAME):
            inside.set()
            await execute(target, pause)

    async def main() -> None:
        inside = asyncio.Event()
        task = asyncio.ensure_future(hold(inside))
        await inside.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    server_locks.until_nothing_is_held()


def test_a_holder_whose_connection_is_ended_has_lost_it(
    database: Database, server_locks: ServerLocks, engine: sqlalchemy.Engine
) -> None:
    number = {"postgres": "pg_backend_pid()", "mariadb": "connection_id()"}[database.kind]
    end = {"postgres": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}[database.kind]

    def hold() -> None:
        with engine.begin() as connection, lock(connection, NAME):
            mine = connection.execute(sqlalchemy.text(f"SELECT {number}")).scalar()
            server_locks.query(end.format(mine))
            server_locks.until_nothing_is_held()
            assert free(database.engine(poolclass=sqlalchemy.NullPool), NAME)
            connection.execute(sqlalchemy.text("UPDATE account SET balance = 1"))

    with pytest.raises(sqlalchemy.exc.OperationalError) as raised:
        hold()
    assert raised.value.connection_invalidated
    assert database.row("balance") == (100,)


def test_a_deadlock_is_reported(engine: sqlalchemy.Engine, server_locks: ServerLocks) -> None:
    both = threading.Barrier(2)
    lost: list[Exception] = []
    _, show, _ = SETTING[server_locks.kind]
    usual = {"postgres": "0", "mariadb": 50}[server_locks.kind]

    def take(first: str, second: str) -> None:
        with engine.connect() as connection, lock(connection, first):
            both.wait(60)
            try:
                with lock(connection, second, timeout=30):
                    assert free(engine, "c")
            except sqlalchemy.exc.DBAPIError as error:
                lost.append(error)
            connection.rollback()
            assert connection.execute(sqlalchemy.text(show)).scalar() == usual

    with ThreadPoolExecutor() as threads:
        for work in [threads.submit(take, *pair) for pair in (("a", "b"), ("b", "a"))]:
            work.result(60)
    assert len(lost) == 1
    assert is_conflict(lost[0])
    server_locks.until_nothing_is_held()


@pytest.mark.parametrize("name", [NAME, "new:{}"])
def test_what_is_read_and_written_under_the_lock_is_never_lost(
    database: Database, server_locks: ServerLocks, name: str
) -> None:
    # With new names the rows are made, and given up, by several at once (hazard J10).
    engine = database.engine(pool_size=8)
    statements = ["SELECT balance FROM account WHERE id = 5", "UPDATE account SET balance = {}"]

    def add(turn: int) -> None:
        with engine.connect() as connection, lock(connection, name.format(turn // 2)):
            if "new" in name:
                connection.rollback()
                return
            balance = connection.execute(sqlalchemy.text(statements[0])).scalar_one()
            connection.execute(sqlalchemy.text(statements[1].format(balance + 1)))
            connection.commit()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(60 if "new" in name else 200)))
    engine.dispose()
    assert database.row("balance") == (100 if "new" in name else 300,)
    server_locks.until_nothing_is_held()
