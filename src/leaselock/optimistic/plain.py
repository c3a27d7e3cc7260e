"""Conditional writes on a plain DB-API connection (PEP 249): psycopg, PyMySQL, sqlite3 and others.

Invariant: a value is always a parameter, never text. A name is always quoted, so its case matters.
A dot separates a schema from its table, and has no other meaning.
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
    """The name of the DB-API package of the connection; None if it is of none."""
    for cls in type(connection).__mro__:
        top = cls.__module__.partition(".")[0]
        if hasattr(sys.modules.get(top), "paramstyle"):
            return top
    return None


class Plain:
    """Executes a write on a DB-API connection, in the caller's transaction."""

    def __init__(self, connection: Any, driver: str) -> None:
        self.connection = connection
        self.driver = driver
        self.mysql = driver in MYSQL
        self.unchanged_is_unmatched = self.snapshots = self.mysql
        self.style: str = sys.modules[driver].paramstyle

    def update(self, write: Write) -> int:
        """Execute the UPDATE. Returns how many rows it matched."""
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
        """The version or fence of the row; None without a row. *current*: not from a snapshot."""
        text = Text(self.style, self.mysql)
        what = f"SELECT {text.name(write.column)} FROM {text.table(write.table)}"
        # This syntax is known to MariaDB and every version of MySQL.
        how = " LOCK IN SHARE MODE" if current else ""
        with closing(self.connection.cursor(**self._rows())) as cursor:
            cursor.execute(f"{what} WHERE {text.where(write)}{how}", text.parameters)
            row = cursor.fetchone()
        if row is None:
            return None
        return (next(iter(row.values())) if hasattr(row, "values") else row[0],)

    def _rows(self) -> dict[str, object]:
        """psycopg may be set to make objects of rows; this asks for tuples."""
        if self.driver != "psycopg":
            return {}
        return {"row_factory": sys.modules["psycopg.rows"].tuple_row}

    def name(self, write: Write) -> str:
        """The name of the table, for messages."""
        return ".".join(parts_of(write.table))


class Text:
    """The parts of one statement, and its parameters in order."""

    def __init__(self, style: str, mysql: bool) -> None:
        self.marker = MARKERS[style]
        self.quote = "`" if mysql else '"'
        # In these styles a percent sign begins a marker, in a name as well.
        self.escaped = style in ("format", "pyformat")
        self.listed: list[object] = []
        self.named = style == "named"

    @property
    def parameters(self) -> list[object] | dict[str, object]:
        """The parameters, in the form that the driver expects."""
        if self.named:
            return {f"p{number}": value for number, value in enumerate(self.listed, 1)}
        return self.listed

    def value(self, value: object) -> str:
        """Add a parameter. Returns its marker."""
        self.listed.append(value)
        return self.marker(len(self.listed))

    def name(self, name: str) -> str:
        """A name, quoted."""
        if not name or "\0" in name:
            raise ValueError(f"no table or column is called {name!r}")
        quoted = self.quote + name.replace(self.quote, self.quote * 2) + self.quote
        return quoted.replace("%", "%%") if self.escaped else quoted

    def table(self, table: object) -> str:
        """The quoted name of the table, with its schema."""
        return ".".join(self.name(part) for part in parts_of(table))

    def where(self, write: Write) -> str:
        """The condition for the key."""
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
