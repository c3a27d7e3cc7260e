"""Where no lock of a transaction is possible, and what is said then; and what else surrounds it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool, StaticPool
from testkit.servers.mariadb import MariaDB
from testkit.servers.pgbouncer import PgBouncer
from testkit.servers.postgres import Postgres
from tests.sql.places import Database
from tests.sql.server_locks import free

from leaselock._core.client.validation import LONGEST_NAME
from leaselock.errors import AcquireTimeout, ClientClosed, InvalidName, NotApplied
from leaselock.optimistic.conflicts import is_conflict
from leaselock.sql import lock, mysql
from leaselock.sql.postgres import key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sql.server_locks import ServerLocks

NAME = "order:5"
KEY = "SELECT ('x' || left(encode(sha256(convert_to(%s, 'UTF8')), 'hex'), 16))::bit(64)::bigint"


@pytest.fixture
def engine(database: Database) -> Iterator[sqlalchemy.Engine]:
    """One for the test."""
    made = database.engine()
    yield made
    made.dispose()


def wanted(target: Any, name: Any = NAME, **options: Any) -> None:
    """Request the lock, which must not be granted."""
    with lock(target, name, **options):
        pytest.fail("it was granted")


# --- what is asked for -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a\nb", "x" * (LONGEST_NAME + 1), b"a", None])
def test_a_name_that_cannot_be_is_refused_before_anything_is_asked(name: Any) -> None:
    with pytest.raises(InvalidName):
        lock(object(), name)  # type: ignore[call-overload]


def test_every_other_name_is_one_of_its_own(
    engine: sqlalchemy.Engine, server_locks: ServerLocks
) -> None:
    names = ["a", "A", "a ", " a", "%s", ":name", "'; --", "ä", "☃" * 85, "x" * LONGEST_NAME, "\\"]
    for name in names:
        with engine.begin() as connection, lock(connection, name, timeout=0):
            assert not free(engine, name)
            assert all(free(engine, other) for other in names if other != name)
    server_locks.until_nothing_is_held()


@pytest.mark.parametrize(("timeout", "kind"), [(-1, ValueError), ("1", TypeError)])
def test_a_time_that_cannot_be_is_refused(timeout: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="timeout is"):
        lock(object(), NAME, timeout=timeout)  # type: ignore[call-overload]


def test_what_is_no_connection_is_named(sqlite: Database) -> None:
    engine = sqlite.engine()
    with sqlite.plain() as connection:
        for thing in (connection, None, "sqlite://"):
            with pytest.raises(TypeError, match="of SQLAlchemy, synchronous or asynchronous"):
                wanted(thing)
    with pytest.raises(TypeError, match=r"not Engine: with engine\.begin\(\)"):
        wanted(engine)
    engine.dispose()


def test_a_closed_connection_says_so(engine: sqlalchemy.Engine, server_locks: ServerLocks) -> None:
    connection = engine.connect()
    connection.close()
    with pytest.raises(ClientClosed, match="the connection is closed"):
        wanted(connection)

    async def main() -> None:
        url = engine.url.render_as_string(hide_password=False).replace("pymysql", "aiomysql")
        coloured = create_async_engine(url)
        async with coloured.connect() as connection:
            await connection.close()
            with pytest.raises(ClientClosed, match="the connection is closed"):
                async with lock(connection, NAME):
                    pytest.fail("it was granted")
        await coloured.dispose()

    asyncio.run(main())
    server_locks.until_nothing_is_held()


def test_the_documented_key(postgres: Database) -> None:
    with postgres.plain() as connection:
        for name in ("order:5", "☃", *map(str, range(20))):
            found = connection.execute(KEY, [f"advisory:{name}"]).fetchone()
            assert found == (key(name),)
    assert key("order:5") == 2946146423274479995
    assert min(key(str(number)) for number in range(20)) < 0


# --- connections -------------------------------------------------------------------------------


def test_a_connection_that_commits_every_statement_is_refused(
    database: Database, engine: sqlalchemy.Engine, server_locks: ServerLocks
) -> None:
    every = database.engine(isolation_level="AUTOCOMMIT", poolclass=NullPool)
    for connection in (every.connect(), engine.connect()):
        chosen = connection.execution_options(isolation_level="AUTOCOMMIT")
        with chosen, pytest.raises(NotApplied, match="commits every statement"):
            wanted(chosen)

    async def main() -> None:
        coloured = create_async_engine(database.async_url, isolation_level="AUTOCOMMIT")
        async with coloured.connect() as connection:
            with pytest.raises(NotApplied, match="commits every statement"):
                async with lock(connection, NAME):
                    pytest.fail("it was granted")
        await coloured.dispose()

    asyncio.run(main())
    server_locks.until_nothing_is_held()


def test_a_pool_of_one_connection_is_enough(
    database: Database, engine: sqlalchemy.Engine, server_locks: ServerLocks
) -> None:
    one: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.5}
    shared: dict[str, Any] = {"poolclass": StaticPool}
    for number, options in enumerate((one, shared)):
        small = database.engine(**options)
        with small.begin() as connection:
            connection.execute(text("UPDATE account SET balance = 1 WHERE id = 5"))
            with lock(connection, f"new name {number}"):
                assert not free(engine, f"new name {number}")
            connection.rollback()
        small.dispose()
    assert database.row("balance") == (100,)  # the caller's transaction is not committed
    server_locks.until_nothing_is_held()


def test_many_that_are_new_at_once_share_a_small_pool(
    database: Database, server_locks: ServerLocks
) -> None:
    engine = database.engine(pool_size=4, max_overflow=0, pool_timeout=10)

    async def main() -> None:
        await asyncio.gather(*(asyncio.to_thread(once, number) for number in range(8)))

    def once(number: int) -> None:
        with engine.begin() as connection, lock(connection, f"fresh {number}"):
            connection.execute(text("SELECT 1"))

    asyncio.run(main())
    engine.dispose()
    server_locks.until_nothing_is_held()


def test_through_a_proxy_that_pools_transactions(postgres_server: Postgres) -> None:
    with PgBouncer(postgres_server) as proxy:
        address = "postgresql+psycopg:" + proxy.url.partition(":")[2]
        database = Database("postgres", address)
        engine = database.engine(connect_args={"prepare_threshold": None})
        with engine.begin() as connection, lock(connection, NAME):
            assert not free(engine, NAME)
            with engine.begin() as other, pytest.raises(AcquireTimeout):
                wanted(other, timeout=0.05)
        assert free(engine, NAME)
        engine.dispose()


def test_sqlite_is_refused_with_an_alternative(sqlite: Database) -> None:
    engine = sqlite.engine()
    with engine.begin() as connection:
        with pytest.raises(NotApplied, match="begin the transaction with BEGIN IMMEDIATE, or use"):
            wanted(connection)
        engine.dialect.name = "elsewhere"
        with pytest.raises(
            NotApplied, match="elsewhere has no lock of this kind here; postgresql, "
        ):
            wanted(connection)
    engine.dispose()


# --- PostgreSQL --------------------------------------------------------------------------------


def test_a_standby_locks_nothing_for_others() -> None:
    with Postgres() as server:
        (Path(server.folder) / "data" / "standby.signal").touch()
        server.restart()
        engine = Database("postgres", "postgresql+psycopg:" + server.url.partition(":")[2]).engine()
        with (
            engine.begin() as connection,
            pytest.raises(NotApplied, match="this server is a standby"),
        ):
            wanted(connection)
        engine.dispose()


def test_who_may_only_read_may_lock(postgres: Database) -> None:
    engine = postgres.engine(execution_options={"postgresql_readonly": True})
    with engine.begin() as connection, lock(connection, NAME, timeout=0):
        assert not free(engine, NAME)
        with engine.begin() as other, pytest.raises(AcquireTimeout):
            wanted(other, timeout=0.05)
    engine.dispose()


def test_the_holder_is_named(postgres: Database) -> None:
    engine = postgres.engine(connect_args={"application_name": "billing"})
    with engine.begin() as connection, lock(connection, NAME):
        number = connection.execute(text("SELECT pg_backend_pid()")).scalar()
        with engine.begin() as other, pytest.raises(AcquireTimeout) as raised:
            wanted(other, timeout=0)
    assert raised.value.name == NAME
    assert f"held by backend {number} (billing), in a transaction of 0 s" in str(raised.value)
    engine.dispose()


def test_what_a_snapshot_has_missed_is_a_conflict(postgres: Database) -> None:
    # The statement that takes the lock takes the snapshot first, and may wait long after that.
    engine = postgres.engine(isolation_level="REPEATABLE READ")
    with engine.begin() as connection:
        connection.execute(text("SELECT 1 FROM account"))
        postgres.do("UPDATE account SET balance = 1")
        with pytest.raises(sqlalchemy.exc.OperationalError) as raised, lock(connection, NAME):
            connection.execute(text("UPDATE account SET balance = balance + 1"))
        assert is_conflict(raised.value)
        connection.rollback()
    engine.dispose()


def test_other_errors_of_a_wait_leave_the_transaction_too(
    postgres: Database, server_locks: ServerLocks
) -> None:
    engine = postgres.engine()
    with engine.begin() as holder, lock(holder, NAME), engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = '50ms'"))
        connection.execute(text("UPDATE account SET balance = 1 WHERE id = 5"))
        with pytest.raises(sqlalchemy.exc.OperationalError, match="statement timeout"):
            wanted(connection, timeout=30)
        assert connection.execute(text("SHOW lock_timeout")).scalar() == "0"
    assert postgres.row("balance") == (1,)
    engine.dispose()
    server_locks.until_nothing_is_held()


# --- MySQL -------------------------------------------------------------------------------------


def test_a_table_that_is_missing_is_named_with_its_cure(mariadb: Database) -> None:
    engine = mariadb.engine()
    mariadb.do("DROP TABLE leaselock_row")
    for _ in range(2):
        with engine.begin() as connection, pytest.raises(NotApplied) as raised:
            wanted(connection)
        assert "no table leaselock_row: run `leaselock setup URL`, or CREATE" in str(raised.value)
    mariadb.do(str(raised.value).partition(", or ")[2])
    with engine.begin() as connection, lock(connection, NAME):
        assert not free(engine, NAME)
    mariadb.do("DROP TABLE leaselock_row")
    with engine.begin() as connection, pytest.raises(NotApplied, match="there is no table"):
        wanted(connection)
    engine.dispose()
    mariadb.do(mysql.SCHEMA)


def test_a_row_that_is_swept_is_made_in_the_transaction(
    mariadb: Database, server_locks: ServerLocks
) -> None:
    engine, stranger = mariadb.engine(), mariadb.engine()
    assert free(engine, NAME)
    for timeout in (0, 0.5, 5):
        mariadb.do("DELETE FROM leaselock_row")  # as `leaselock gc` does
        with engine.connect() as connection, lock(connection, NAME, timeout=timeout):
            limit = connection.execute(text("SELECT @@innodb_lock_wait_timeout")).scalar()
            assert limit == 50
            assert not free(engine, NAME)
            assert not free(stranger, NAME)
            connection.rollback()
            assert free(engine, NAME)
        with engine.begin() as connection, lock(connection, NAME, timeout=timeout):
            assert not free(stranger, NAME)
        assert free(stranger, NAME)
    engine.dispose()
    stranger.dispose()
    server_locks.until_nothing_is_held()


def test_waiters_survive_that_the_row_is_swept(
    mariadb: Database, server_locks: ServerLocks
) -> None:
    engine = mariadb.engine(pool_size=4)
    assert free(engine, NAME)
    mariadb.do("DELETE FROM leaselock_row")

    def once(_: int) -> None:
        with engine.begin() as connection, lock(connection, NAME, timeout=30):
            connection.execute(text("UPDATE account SET balance = balance + 1 WHERE id = 5"))

    with ThreadPoolExecutor(4) as threads:
        with engine.begin() as connection, lock(connection, NAME):
            waiters = [threads.submit(once, number) for number in range(3)]
            server_locks.until_waiting(3)
        for waiter in waiters:
            waiter.result(60)
    engine.dispose()
    assert mariadb.row("balance") == (103,)


def test_a_missing_permission_to_insert_is_reported(
    mariadb: Database, mariadb_server: MariaDB
) -> None:
    mariadb_server.do(
        "CREATE USER reader@'%' IDENTIFIED BY 'secret'", "GRANT SELECT ON locks.* TO reader@'%'"
    )
    reader = Database("mariadb", mariadb.url.replace("//leaselock:", "//reader:"))
    engine = reader.engine()
    with (
        engine.begin() as connection,
        pytest.raises(NotApplied, match=r"could not be made: .*INSERT"),
    ):
        wanted(connection, "another new name")
    engine.dispose()
    mariadb_server.do("DROP USER reader@'%'")


def test_who_may_only_read_cannot_lock_a_row(mariadb: Database) -> None:
    engine = mariadb.engine()
    with engine.connect() as connection:
        connection.execute(text("START TRANSACTION READ ONLY"))
        with pytest.raises(NotApplied, match="that may only read, no row can be locked"):
            wanted(connection)
    engine.dispose()


def test_what_was_read_before_the_lock_stays_what_it_was(mariadb: Database) -> None:
    # The lock reads no snapshot: it is taken by the first read that the caller does.
    engine = mariadb.engine()
    balance = text("SELECT balance FROM account WHERE id = 5")
    with engine.begin() as connection, lock(connection, NAME):
        mariadb.do("UPDATE account SET balance = 1")
        assert connection.execute(balance).scalar() == 1
        mariadb.do("UPDATE account SET balance = 2")
        assert connection.execute(balance).scalar() == 1
        assert connection.execute(text(f"{balance.text} FOR UPDATE")).scalar() == 2
    engine.dispose()


@pytest.mark.heavy
def test_a_server_with_settings_that_spoil_a_lock() -> None:
    with MariaDB(**{"innodb-rollback-on-timeout": "ON"}) as server:
        database = Database("mariadb", "mysql+pymysql:" + server.url.partition(":")[2])
        database.do(mysql.SCHEMA, "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)")
        engine = database.engine()
        with engine.begin() as holder, lock(holder, NAME):
            for timeout in (0, 0.2):
                with engine.connect() as connection:
                    connection.execute(text("INSERT INTO account VALUES (5, 1)"))
                    with pytest.raises(AcquireTimeout, match="has ended the one that waited"):
                        wanted(connection, timeout=timeout)
                    with pytest.raises(sqlalchemy.exc.PendingRollbackError):
                        connection.execute(text("INSERT INTO account VALUES (6, 1)"))
        with engine.begin() as connection, lock(connection, NAME, timeout=5):
            assert connection.execute(text("SELECT count(*) FROM account")).scalar() == 0
        server.do("SET GLOBAL read_only = 1")
        with (
            engine.begin() as connection,
            pytest.raises(NotApplied, match="this server is read-only"),
        ):
            wanted(connection)
        engine.dispose()


def test_a_failed_wait_does_not_block_other_names(
    mariadb: Database, server_locks: ServerLocks
) -> None:
    # Not even from new ones that sort next to it: no gap stays locked (hazard J10).
    engine = mariadb.engine()
    with engine.begin() as holder, lock(holder, "m"), engine.begin() as other:
        for timeout in (0, 1):
            with pytest.raises(AcquireTimeout):
                wanted(other, "m", timeout=timeout)
        for name in ("l", "ma", "n", "zzz"):
            with engine.begin() as third, lock(third, name, timeout=0):
                third.execute(text("SELECT 1"))
            with lock(other, name + "'", timeout=0):
                other.execute(text("SELECT 1"))
    engine.dispose()
    server_locks.until_nothing_is_held()
