"""Conflicts that databases report by their own errors, each provoked on a real server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from tests.sql.places import account

from leaselock.errors import FenceRejected, NotApplied, RowNotFound, StaleVersion
from leaselock.optimistic import compare_and_set, fenced_write
from leaselock.optimistic.conflicts import is_conflict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sql.places import Database
    from tests.sql.server_locks import ServerLocks

ROW: dict[str, object] = {"id": 5}
READ = "SELECT version FROM account WHERE id = 5"
RAISE = "UPDATE account SET version = version + 1, balance = 1 WHERE id = {}"


@contextmanager
def reader(database: Database, *before: str) -> Iterator[Any]:
    """A transaction that sees the rows as they were when it began to read."""
    with database.plain() as connection:
        cursor = connection.cursor()
        for statement in before:
            cursor.execute(statement)
        cursor.execute(READ)
        assert cursor.fetchone() == (1,)
        yield connection
        connection.rollback()


def test_a_snapshot_of_mysql_hides_nothing(mariadb: Database) -> None:
    with reader(mariadb) as connection:
        mariadb.do(RAISE.format(5))
        with pytest.raises(StaleVersion) as raised:
            compare_and_set(connection, "account", ROW, {}, expected=1)
        assert raised.value.found == 2
    with mariadb.engine().connect() as alchemist:
        assert alchemist.execute(sqlalchemy.text(READ)).scalar() == 2
        mariadb.do("DELETE FROM account WHERE id = 5")
        with pytest.raises(RowNotFound):
            compare_and_set(alchemist, account, ROW, {}, expected=2)
        with pytest.raises(RowNotFound):
            fenced_write(alchemist, account, ROW, {}, token=2)
        alchemist.rollback()
        alchemist.engine.dispose()


def test_a_row_that_a_snapshot_lacks_is_found(mariadb: Database) -> None:
    with mariadb.plain() as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT count(*) FROM account")
        mariadb.do("INSERT INTO account (id, version) VALUES (7, 8)")
        with pytest.raises(StaleVersion, match="has version 8, not 1"):
            compare_and_set(connection, "account", {"id": 7}, {}, expected=1)


def conflict_of(connection: Any, **options: Any) -> Exception:
    """What a write that lost raises."""
    with pytest.raises(Exception, match=r".") as raised:
        compare_and_set(connection, "account", ROW, {}, expected=1, **options)
    assert not isinstance(raised.value, StaleVersion)
    return raised.value


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("change", [RAISE.format(5), "DELETE FROM account WHERE id = 5"])
def test_a_serialization_failure(postgres: Database, level: str, change: str) -> None:
    with reader(postgres, f"SET TRANSACTION ISOLATION LEVEL {level}") as connection:
        postgres.do(change)
        assert is_conflict(conflict_of(connection))


def test_a_serialization_failure_reported_by_sqlalchemy(postgres: Database) -> None:
    engine = postgres.engine(isolation_level="SERIALIZABLE")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(READ))
        postgres.do(RAISE.format(5))
        error = conflict_of(connection)
        assert isinstance(error, sqlalchemy.exc.DBAPIError)
        assert is_conflict(error)
    engine.dispose()


def test_a_record_that_has_changed_since_it_was_read(mariadb: Database) -> None:
    with reader(mariadb, "SET innodb_snapshot_isolation = ON") as connection:
        mariadb.do(RAISE.format(5))
        error = conflict_of(connection)
        assert error.args[0] == 1020
        assert is_conflict(error)


def test_a_lock_that_was_waited_for_too_long(mariadb: Database) -> None:
    with mariadb.plain() as holder, mariadb.plain() as connection:
        holder.cursor().execute(RAISE.format(5))
        connection.cursor().execute("SET innodb_lock_wait_timeout = 1")
        error = conflict_of(connection)
        assert error.args[0] == 1205
        assert is_conflict(error)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_deadlock(kind: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(kind)
    lost: list[Exception] = []
    both = threading.Barrier(2)

    def work(first: int, second: int) -> None:
        with database.plain() as connection:
            connection.cursor().execute(RAISE.format(first))
            both.wait(60)
            try:
                compare_and_set(connection, "account", {"id": second}, {}, expected=1)
            except StaleVersion:  # the one that goes on finds what the other has not undone
                pass
            except Exception as error:
                lost.append(error)
            connection.rollback()

    threads = [threading.Thread(target=work, args=pair) for pair in ((5, 6), (6, 5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lost) == 1
    assert is_conflict(lost[0])


def test_a_file_that_another_writer_has(sqlite: Database) -> None:
    sqlite.do("PRAGMA journal_mode = WAL")
    with ExitStack() as stack:
        older = stack.enter_context(reader(sqlite, "BEGIN"))
        sqlite.do(RAISE.format(5))
        snapshot = conflict_of(older)  # at once: no time makes an old snapshot new
        writer, waiter = (stack.enter_context(sqlite.plain()) for _ in range(2))
        writer.execute("BEGIN IMMEDIATE")
        waiter.execute("PRAGMA busy_timeout = 1")
        busy = conflict_of(waiter)
    assert is_conflict(snapshot)
    assert is_conflict(busy)


def test_other_errors_are_no_conflicts(database: Database) -> None:
    with database.plain() as connection, pytest.raises(Exception, match=r".") as raised:
        compare_and_set(connection, "no_such_table", ROW, {}, expected=1)
    assert not is_conflict(raised.value)
    assert not is_conflict(OSError(1205, "a number is not enough"))
    assert not is_conflict(RowNotFound("account", ROW))


TRIGGERS = {
    "sqlite": "CREATE TRIGGER still BEFORE UPDATE ON account BEGIN SELECT RAISE(IGNORE); END",
    "postgres": "CREATE RULE still AS ON UPDATE TO account DO INSTEAD NOTHING",
}


@pytest.mark.parametrize("kind", TRIGGERS)
def test_an_update_that_the_database_suppresses(kind: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(kind)
    database.do(TRIGGERS[kind])
    with database.plain() as connection:
        with pytest.raises(NotApplied, match="a trigger, a rule or a policy prevents it"):
            compare_and_set(connection, "account", ROW, {}, expected=1)
        with pytest.raises(NotApplied, match="a trigger, a rule or a policy prevents it"):
            fenced_write(connection, "account", ROW, {}, token=1)


# --- two at the same time ----------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_who_had_to_wait_for_the_row_is_judged_by_what_it_is_then(
    kind: str, kept: bool, request: pytest.FixtureRequest
) -> None:
    database: Database = request.getfixturevalue(kind)
    server_locks: ServerLocks = request.getfixturevalue("server_locks")

    def write(number: int) -> int:
        found: int
        with database.plain() as connection:
            if number == 33:
                found = fenced_write(connection, "account", ROW, {"balance": 1}, token=number)
            else:
                found = compare_and_set(connection, "account", {"id": 6}, {}, expected=1)
        return found

    with ThreadPoolExecutor() as threads, database.plain() as first:
        fenced_write(first, "account", ROW, {"balance": 2}, token=34)
        compare_and_set(first, "account", {"id": 6}, {}, expected=1)
        late = [threads.submit(write, number) for number in (33, 1)]
        server_locks.until_blocked(2)
        if not kept:
            first.rollback()
            assert [writer.result(60) for writer in late] == [33, 2]
            return
        first.commit()
        with pytest.raises(FenceRejected, match="with token 34"):
            late[0].result(60)
        with pytest.raises(StaleVersion, match="has version 2, not 1"):
            late[1].result(60)
    assert database.row() == (2, 1, 34)
