"""Conditional writes on a plain DB-API connection (PEP 249): psycopg, PyMySQL, sqlite3 and others.

Law: a value is always a parameter, never text. A name is always quoted, in the manner of the
database, so it is one name whatever is in it: case matters. Only a dot separates: a schema from
its table.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leaselock.optimistic.condition import Write

MYSQL = {"pymysql", "MySQLdb", "mysql", "mariadb"}
MARKERS: dict[str, Callable[[int], str]] = {
    "qmark": lambda number: "?",
    "format": lambda number: "%s",
    "pyformat": lambda number: "%s",
    "numeric": lambda number: f":{number}",
    "named": lambda number: f":p{number}",
}


def driver_of(connection: object) -> str | None:
    """The top name of the DB-API module that the connection is from; None if it is from none."""
    for cls in type(connection).__mro__:
        top = cls.__module__.partition(".")[0]
        if hasattr(sys.modules.get(top), "paramstyle"):
            return top
    return None


class Plain:
    """A DB-API connection; its transaction is the caller's."""

    def __init__(self, connection: Any, driver: str) -> None:
        self.connection = connection
        self.driver = driver
        self.mysql = driver in MYSQL
        self.unchanged_is_unmatched = self.snapshots = self.mysql
        self.style: str = sys.modules[driver].paramstyle

    def update(self, write: Write) -> int:
        """How many rows it matched."""
        text = Text(self.style, self.mysql)
        new = {**write.values, write.column: write.new}
        sets = ", ".join(f"{text.name(name)} = {text.value(value)}" for name, value in new.items())
        column = text.name(write.column)
        where = f"{text.where(write)} AND "
        unwritten = f"{column} IS NULL OR " if write.fence else ""
        where += f"({unwritten}{column} {write.condition} {text.value(write.limit)})"
        statement = f"UPDATE {text.table(write.table)} SET {sets} WHERE {where}"
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(statement, text.parameters)
            matched: int = cursor.rowcount
        return matched

    def look(self, write: Write, *, current: bool) -> tuple[object] | None:
        """The row's version or fence; None without a row. *current*: not from a snapshot."""
        text = Text(self.style, self.mysql)
        what = f"SELECT {text.name(write.column)} FROM {text.table(write.table)}"
        # The words that MariaDB and every MySQL know.
        how = " LOCK IN SHARE MODE" if current else ""
        with closing(self.connection.cursor(**self._rows())) as cursor:
            cursor.execute(f"{what} WHERE {text.where(write)}{how}", text.parameters)
            row = cursor.fetchone()
        if row is None:
            return None
        return (next(iter(row.values())) if hasattr(row, "values") else row[0],)

    def _rows(self) -> dict[str, object]:
        """Where psycopg is told to make objects of rows: tuples all the same."""
        if self.driver != "psycopg":
            return {}
        return {"row_factory": sys.modules["psycopg.rows"].tuple_row}

    def name(self, write: Write) -> str:
        """The table, for people."""
        return ".".join(parts_of(write.table))


class Text:
    """The parts of one statement, and the parameters that its markers stand for, in order."""

    def __init__(self, style: str, mysql: bool) -> None:
        self.marker = MARKERS[style]
        self.quote = "`" if mysql else '"'
        # There a percent sign begins a marker, in a name as well.
        self.escaped = style in ("format", "pyformat")
        self.listed: list[object] = []
        self.named = style == "named"

    @property
    def parameters(self) -> list[object] | dict[str, object]:
        """What goes with the text."""
        if self.named:
            return {f"p{number}": value for number, value in enumerate(self.listed, 1)}
        return self.listed

    def value(self, value: object) -> str:
        """The marker of a parameter."""
        self.listed.append(value)
        return self.marker(len(self.listed))

    def name(self, name: str) -> str:
        """A name, quoted."""
        if not name or "\0" in name:
            raise ValueError(f"no table or column is called {name!r}")
        quoted = self.quote + name.replace(self.quote, self.quote * 2) + self.quote
        return quoted.replace("%", "%%") if self.escaped else quoted

    def table(self, table: object) -> str:
        """The table's name, with its schema's."""
        return ".".join(self.name(part) for part in parts_of(table))

    def where(self, write: Write) -> str:
        """The row's key."""
        return " AND ".join(
            f"{self.name(name)} = {self.value(value)}" for name, value in write.key.items()
        )


def parts_of(table: object) -> Iterable[str]:
    """The schema, if there is one, and the table: from "schema.table", or from a tuple of both."""
    if isinstance(table, str):
        return table.split(".")
    if isinstance(table, tuple) and all(isinstance(part, str) for part in table):
        return table
    raise TypeError(
        "on a plain connection a table is a str, or a tuple of schema and table, "
        f"not {type(table).__name__}"
    )
