"""Recipes with a database table, from books and blogs.

They use a DB-API connection in autocommit mode, and portable SQL: each recipe has one text for
SQLite, PostgreSQL and MariaDB.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from verification.hazards.lock_program import REPLY_TIMEOUT, NotOwner, PollingProgram

from leaselock._backends import library

TABLE = "leaselock_hazards"
CREATE_TABLE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} "
    "(name VARCHAR(200) PRIMARY KEY, holder VARCHAR(40), ends DOUBLE PRECISION)"
)


def connect(url: str) -> Any:
    """Return a connection of the driver for the URL."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        driver = import_module("sqlite3")
        connection = driver.connect(parts.path[1:], isolation_level=None, timeout=REPLY_TIMEOUT)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection
    if parts.scheme.startswith("postgres"):
        return library("psycopg", "postgres").connect(
            without_leaselock_options(url), autocommit=True
        )
    driver = library("pymysql", "mysql")
    return driver.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path[1:],
        autocommit=True,
    )


def without_leaselock_options(url: str) -> str:
    """Return the URL without leaselock's own options."""
    base, _, query = url.partition("?")
    words = [word for word in query.split("&") if word.partition("=")[0] == "options"]
    return "?".join([base, *words])


class OnTable(PollingProgram):
    """Common to the recipes: a connection, and a random id of the owner."""

    def __init__(self, url: str) -> None:
        self.connection = connect(url)
        self.marker = "?" if url.startswith("sqlite") else "%s"
        self.owner_id = os.urandom(8).hex()
        self.exists_error: tuple[type[Exception], ...] = tuple(
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

    def try_acquire(self, name: str, lease: float) -> bool:
        """INSERT: the primary key rejects a second row."""
        try:
            self.run(f"INSERT INTO {TABLE} (name, holder) VALUES (?, ?)", name, self.owner_id)
        except self.exists_error:
            return False
        return True

    def release(self, name: str) -> None:
        """DELETE, without checking the owner."""
        self.held = False
        self.run(f"DELETE FROM {TABLE} WHERE name = ?", name)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class InsertDelete(OnTable):
    """INSERT; DELETE."""


class SelectUpdate(OnTable):
    """SELECT the holder, and UPDATE it if there is none; UPDATE with a condition on the holder."""

    def try_acquire(self, name: str, lease: float) -> bool:
        """Two statements, in no transaction."""
        row = self.run(f"SELECT holder FROM {TABLE} WHERE name = ?", name).fetchone()
        if row is None:
            self.run(f"INSERT INTO {TABLE} (name, holder) VALUES (?, NULL)", name)
        elif row[0] is not None:
            return False
        self.run(f"UPDATE {TABLE} SET holder = ? WHERE name = ?", self.owner_id, name)
        return True

    def release(self, name: str) -> None:
        """One statement, with a condition."""
        self.held = False
        free = f"UPDATE {TABLE} SET holder = NULL WHERE name = ? AND holder = ?"
        if not self.run(free, name, self.owner_id).rowcount:
            raise NotOwner


class ClientClock(OnTable):
    """DELETE an expired row and INSERT one with an expiry time, both by the client's clock; DELETE
    with a condition on the holder.
    """

    def try_acquire(self, name: str, lease: float) -> bool:
        """Two statements."""
        self.run(f"DELETE FROM {TABLE} WHERE name = ? AND ends < ?", name, time.time())
        row = (name, self.owner_id, time.time() + lease)
        try:
            self.run(f"INSERT INTO {TABLE} (name, holder, ends) VALUES (?, ?, ?)", *row)
        except self.exists_error:
            return False
        return True

    def release(self, name: str) -> None:
        """One statement, with a condition."""
        self.held = False
        gone = f"DELETE FROM {TABLE} WHERE name = ? AND holder = ?"
        if not self.run(gone, name, self.owner_id).rowcount:
            raise NotOwner


def make_table(url: str) -> None:
    """Create the table of the recipes."""
    connection = connect(url)
    connection.cursor().execute(CREATE_TABLE)
    connection.close()
