"""The recipes for a table in a database, as they stand in books and blogs.

Law: a DB-API connection that commits each statement by itself, and plain SQL that every database
understands. One text of each recipe for SQLite, PostgreSQL and MariaDB.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from leaselock.backends import library
from leaselock.testing.hazards.party import ANSWER, Asking, NotMine

TABLE = "leaselock_hazards"
MADE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} "
    "(name VARCHAR(200) PRIMARY KEY, holder VARCHAR(40), ends DOUBLE PRECISION)"
)


def connected(url: str) -> Any:
    """A connection of the driver that belongs to the URL."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        driver = import_module("sqlite3")
        connection = driver.connect(parts.path[1:], isolation_level=None, timeout=ANSWER)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection
    if parts.scheme.startswith("postgres"):
        return library("psycopg", "postgres").connect(ours_removed(url), autocommit=True)
    driver = library("pymysql", "mysql")
    return driver.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path[1:],
        autocommit=True,
    )


def ours_removed(url: str) -> str:
    """The URL without what only leaselock understands."""
    base, _, query = url.partition("?")
    words = [word for word in query.split("&") if word.partition("=")[0] == "options"]
    return "?".join([base, *words])


class OnTable(Asking):
    """What the recipes have in common."""

    def __init__(self, url: str) -> None:
        self.connection = connected(url)
        self.marker = "?" if url.startswith("sqlite") else "%s"
        self.mine = os.urandom(8).hex()
        self.taken: tuple[type[Exception], ...] = tuple(
            import_module(driver).IntegrityError for driver in self._drivers(url)
        )

    def _drivers(self, url: str) -> list[str]:
        scheme = urlsplit(url).scheme
        if scheme == "sqlite":
            return ["sqlite3"]
        return ["psycopg" if scheme.startswith("postgres") else "pymysql"]

    def run(self, statement: str, *values: object) -> Any:
        """Run one statement; ``?`` marks a value."""
        cursor = self.connection.cursor()
        cursor.execute(statement.replace("?", self.marker), values)
        return cursor

    def ask(self, name: str, lease: float) -> bool:
        """INSERT: the primary key says no to the second."""
        try:
            self.run(f"INSERT INTO {TABLE} (name, holder) VALUES (?, ?)", name, self.mine)
        except self.taken:
            return False
        return True

    def release(self, name: str) -> None:
        """DELETE, whosever it is."""
        self.held = False
        self.run(f"DELETE FROM {TABLE} WHERE name = ?", name)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class InsertDelete(OnTable):
    """INSERT; DELETE."""


class SelectUpdate(OnTable):
    """SELECT who holds it, and if nobody does, UPDATE; UPDATE again where it is mine."""

    def ask(self, name: str, lease: float) -> bool:
        """Two statements, in no transaction."""
        row = self.run(f"SELECT holder FROM {TABLE} WHERE name = ?", name).fetchone()
        if row is None:
            self.run(f"INSERT INTO {TABLE} (name, holder) VALUES (?, NULL)", name)
        elif row[0] is not None:
            return False
        self.run(f"UPDATE {TABLE} SET holder = ? WHERE name = ?", self.mine, name)
        return True

    def release(self, name: str) -> None:
        """One statement, with a condition."""
        self.held = False
        free = f"UPDATE {TABLE} SET holder = NULL WHERE name = ? AND holder = ?"
        if not self.run(free, name, self.mine).rowcount:
            raise NotMine


class ClientClock(OnTable):
    """DELETE what has ended by the client's clock, INSERT with an end by the same; DELETE if it is
    mine.
    """

    def ask(self, name: str, lease: float) -> bool:
        """Two statements."""
        self.run(f"DELETE FROM {TABLE} WHERE name = ? AND ends < ?", name, time.time())
        row = (name, self.mine, time.time() + lease)
        try:
            self.run(f"INSERT INTO {TABLE} (name, holder, ends) VALUES (?, ?, ?)", *row)
        except self.taken:
            return False
        return True

    def release(self, name: str) -> None:
        """One statement, with a condition."""
        self.held = False
        gone = f"DELETE FROM {TABLE} WHERE name = ? AND holder = ?"
        if not self.run(gone, name, self.mine).rowcount:
            raise NotMine


def make_table(url: str) -> None:
    """Make the table of the recipes."""
    connection = connected(url)
    connection.cursor().execute(MADE)
    connection.close()
