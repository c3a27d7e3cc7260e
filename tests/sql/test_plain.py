"""Plain DB-API connections: names, rows and drivers of all kinds."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from typing import TYPE_CHECKING, Any

import psycopg
import psycopg.rows
import pytest

from leaselock.errors import FenceRejected, OutcomeUnknown, StaleVersion
from leaselock.optimistic import compare_and_set, fenced_write
from leaselock.optimistic.condition import versioned
from leaselock.optimistic.plain import Text

if TYPE_CHECKING:
    from tests.sql.places import Database

aiomysql: Any = import_module("aiomysql")
pymysql: Any = import_module("pymysql")
ROW: dict[str, object] = {"id": 5}
# What would end a name, a statement or a marker if it were not quoted.
NAMES = ["select", 'a"; --', "a`b", "50%", "%s", "it's", "naïve ☃", "CamelCase", "with space"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_only_a_name(database: Database, name: str) -> None:
    with database.table_called(name) as quoted, database.plain() as connection:
        value = name.encode("ascii", "ignore").decode() + "%s?:1"
        values: dict[str, object] = {name: value}
        compare_and_set(connection, (name,), ROW, values, expected=1)
        with pytest.raises(StaleVersion):
            compare_and_set(connection, (name,), values, {}, expected=1)
        cursor = connection.cursor()
        cursor.execute(f"SELECT {quoted}, version FROM {quoted}")
        assert cursor.fetchone() == (value, 2)


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_no_name_can_be_is_refused(sqlite: Database, name: str) -> None:
    with sqlite.plain() as connection:
        named: dict[str, object] = {name: 5}
        for table, key, values in (
            (name, ROW, {}),
            ("account", named, {}),
            ("account", ROW, named),
        ):
            with pytest.raises(ValueError, match="no table or column is called"):
                compare_and_set(connection, table, key, values, expected=1)


def test_a_schema_goes_before_a_dot(postgres: Database) -> None:
    with postgres.plain() as connection:
        assert compare_and_set(connection, "public.account", ROW, {}, expected=1) == 2
        assert compare_and_set(connection, ("public", "account"), ROW, {}, expected=2) == 3
        with pytest.raises(StaleVersion, match=r"public\.account"):
            compare_and_set(connection, ("public", "account"), ROW, {}, expected=2)


@pytest.mark.parametrize("factory", ["dict_row", "namedtuple_row", "scalar_row", "kwargs_row"])
def test_psycopg_may_make_anything_of_rows(postgres: Database, factory: str) -> None:
    found: Any = getattr(psycopg.rows, factory)
    with postgres.plain() as connection:
        connection.row_factory = found(dict) if factory == "kwargs_row" else found
        with pytest.raises(StaleVersion, match="has version 1, not 9"):
            compare_and_set(connection, "account", ROW, {}, expected=9)


def test_the_rows_of_other_drivers_may_be_dictionaries(sqlite: Database, mariadb: Database) -> None:
    with sqlite.plain() as connection:
        for factory in (sqlite3.Row, lambda cursor, row: {"version": row[0]}):
            connection.row_factory = factory
            with pytest.raises(StaleVersion, match="has version 1, not 9"):
                compare_and_set(connection, "account", ROW, {}, expected=9)
    with (
        pymysql.connect(**mariadb.parts, cursorclass=pymysql.cursors.DictCursor) as connection,
        pytest.raises(StaleVersion, match="has version 1, not 9"),
    ):
        compare_and_set(connection, "account", ROW, {}, expected=9)


def test_rows_that_match_and_do_not_change_are_written(mariadb: Database) -> None:
    # MySQL counts the rows that an UPDATE changed, and with this flag the rows that it matched.
    for flag in (0, pymysql.constants.CLIENT.FOUND_ROWS):
        with pymysql.connect(**mariadb.parts, client_flag=flag) as connection:
            for _ in range(2):
                fenced_write(connection, "account", ROW, {"balance": 7}, token=8 + flag)
            with pytest.raises(FenceRejected):
                fenced_write(connection, "account", ROW, {"balance": 7}, token=1)
            connection.commit()


def test_who_commits_each_statement_is_served_as_well(postgres: Database) -> None:
    with postgres.plain() as connection:
        connection.autocommit = True
        compare_and_set(connection, "account", ROW, {"balance": 3}, expected=1)
        assert postgres.row() == (3, 2, None)


def test_nothing_is_committed_for_the_caller(database: Database) -> None:
    connection = database.connect()
    compare_and_set(connection, "account", ROW, {"balance": 3}, expected=1)
    connection.rollback()
    connection.close()
    assert database.row() == (100, 1, None)


def test_an_unknown_row_count_is_no_success(postgres: Database) -> None:
    with postgres.plain() as connection, connection.pipeline():
        with pytest.raises(OutcomeUnknown, match="does not say how many rows"):
            compare_and_set(connection, "account", ROW, {"balance": 3}, expected=1)
        connection.rollback()


def test_every_manner_of_markers_is_known() -> None:
    write = versioned("a", {"x": 1, "y": 2}, {}, 1, "version")
    wheres = {
        "qmark": '"x" = ? AND "y" = ?',
        "format": '"x" = %s AND "y" = %s',
        "pyformat": '"x" = %s AND "y" = %s',
        "numeric": '"x" = :1 AND "y" = :2',
        "named": '"x" = :p1 AND "y" = :p2',
    }
    for style, where in wheres.items():
        text = Text(style, mysql=False)
        assert text.where(write) == where
        assert text.parameters == ({"p1": 1, "p2": 2} if style == "named" else [1, 2])


def test_what_is_no_connection_is_named(sqlite: Database) -> None:
    things: list[Any] = [object(), "sqlite://", None, sqlite.connect]
    wanted = "a connection of SQLAlchemy or of psycopg, asynchronous or not"
    for thing in things:
        with pytest.raises(TypeError, match=wanted):
            compare_and_set(thing, "account", ROW, {}, expected=1)


def test_mistakes_are_found_before_anything_is_asked(sqlite: Database) -> None:
    with sqlite.plain() as connection:

        def wrong(kind: type[Exception], match: str, **changed: Any) -> None:
            arguments: dict[str, Any] = {
                "key": ROW,
                "values": {},
                "table": "account",
                "expected": 1,
            } | changed
            with pytest.raises(kind, match=match):
                compare_and_set(connection, **arguments)

        wrong(ValueError, "without a key every row", key={})
        wrong(ValueError, "id is None", key={"id": None})
        wrong(ValueError, "'version' is set by the write itself", values={"version": 3})
        wrong(ValueError, "'id' is set by the write itself", column="id")
        wrong(TypeError, "a column is named by a str", values={5: 3})
        wrong(TypeError, "expected is the version read", expected=None)
        wrong(TypeError, "expected is the version read", expected=True)
        wrong(TypeError, "expected is the version read", expected="1")
        wrong(TypeError, "on a plain connection a table is a str", table=7)
        for token, kind in ((0, ValueError), (2**63, ValueError), ("1", TypeError)):
            with pytest.raises(kind, match="a fencing token is"):
                fenced_write(connection, "account", ROW, {}, token=token)  # type: ignore[arg-type]
    assert sqlite.row() == (100, 1, None)
