"""Conditional writes on a plain DB-API connection (PEP 249): psycopg, PyMySQL, sqlite3 and others.

Invariant: a value is always a parameter, never text. A name is always quoted, so its case matters.
A dot separates a schema from its table, and has no other meaning.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from leaselock.optimistic.condition import decide

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
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(*self.update_text(write))
            matched: int = cursor.rowcount
        return matched

    def look(self, write: Write, *, current: bool) -> tuple[object] | None:
        """The version or fence of the row; None without a row. *current*: not from a snapshot."""
        with closing(self.connection.cursor(**self.rows())) as cursor:
            cursor.execute(*self.look_text(write, current))
            return value_of(cursor.fetchone())

    def update_text(self, write: Write) -> tuple[str, Any]:
        """The UPDATE, and its parameters."""
        text = Text(self.style, self.mysql)
        new = {**write.values, write.column: write.new}
        sets = ", ".join(f"{text.name(name)} = {text.value(value)}" for name, value in new.items())
        column = text.name(write.column)
        where = f"{text.where(write)} AND "
        unwritten = f"{column} IS NULL OR " if write.fence else ""
        where += f"({unwritten}{column} {write.condition} {text.value(write.limit)})"
        return f"UPDATE {text.table(write.table)} SET {sets} WHERE {where}", text.parameters

    def look_text(self, write: Write, current: bool) -> tuple[str, Any]:
        """The SELECT, and its parameters."""
        text = Text(self.style, self.mysql)
        what = f"SELECT {text.name(write.column)} FROM {text.table(write.table)}"
        # This syntax is known to MariaDB and every version of MySQL.
        how = " LOCK IN SHARE MODE" if current else ""
        return f"{what} WHERE {text.where(write)}{how}", text.parameters

    def rows(self) -> dict[str, object]:
        """psycopg may be set to make objects of rows; this asks for tuples."""
        if self.driver != "psycopg":
            return {}
        return {"row_factory": sys.modules["psycopg.rows"].tuple_row}

    def name(self, write: Write) -> str:
        """The name of the table, for messages."""
        return ".".join(parts_of(write.table))


async def handle_async(connection: Any, driver: str, write: Write) -> int:
    """Execute the write on an asynchronous connection of psycopg, as `handle` does."""
    plain = Plain(connection, driver)
    decisions = decide(plain, write)
    current = next(decisions)
    try:
        while True:
            answer: Any
            async with connection.cursor(**plain.rows()) as cursor:
                if current is None:
                    await cursor.execute(*plain.update_text(write))
                    answer = cursor.rowcount
                else:
                    await cursor.execute(*plain.look_text(write, current))
                    answer = value_of(await cursor.fetchone())
            current = decisions.send(answer)
    except StopIteration as end:
        number: int = end.value
        return number


def value_of(row: Any) -> tuple[object] | None:
    """The only column of a row, which may be a mapping; None without a row."""
    if row is None:
        return None
    return (next(iter(row.values())) if hasattr(row, "values") else row[0],)


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
