"""The lower bound of each SQL protocol: equivalent bare statements on the usual driver.

The same data are committed, including a counter and a record of the holder. Nothing is checked, a
loss is not reported, and there are no waiters. psycopg and PyMySQL are used as in their tutorials.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from leaselock._backends.sql.url import parsed

TABLE = """CREATE TABLE IF NOT EXISTS bench_lock (
    name varchar(64) PRIMARY KEY, token bigint NOT NULL, holder varchar(80), expires bigint)"""
# The record of the holder, for inspection.
SESSIONS = """CREATE TABLE IF NOT EXISTS bench_session (
    session varchar(80) PRIMARY KEY, name varchar(64), holder varchar(80), since bigint)"""
RECORD_HOLDER = (
    "UPDATE bench_session SET name = 'bench', holder = 'me', since = since + 1 WHERE session = 'a'"
)
COUNT = "UPDATE bench_lock SET token = token + 1 WHERE name = 'counter'"
ROWS = ("lease", "row", "counter")


class Bare:
    """Two connections that commit each statement."""

    version: ClassVar[str] = "bare"
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.url = Path(folder, "url").read_text()
        self.postgres = self.url.startswith("postgres")
        self.connections = [self._connected(), self._connected()]
        self.cursors = [connection.cursor() for connection in self.connections]
        self.execute(TABLE)
        self.execute("DELETE FROM bench_lock")
        self.execute(SESSIONS)
        self.execute("DELETE FROM bench_session")
        self.execute("INSERT INTO bench_session (session, since) VALUES ('a', 0)")
        for name in ROWS:
            self.execute(f"INSERT INTO bench_lock (name, token) VALUES ('{name}', 0)")

    def _connected(self) -> Any:
        if self.postgres:
            return import_module("psycopg").connect(self.url, autocommit=True)
        url = parsed(self.url)
        login = {"host": url.host, "port": url.port, "user": url.user, "password": url.password}
        return import_module("pymysql").connect(**login, database=url.database, autocommit=True)

    def execute(self, statement: str, on: int = 0) -> Any:
        """Execute a statement; return its first row, or the number of rows that it changed."""
        cursor = self.cursors[on]
        cursor.execute(statement)
        return cursor.fetchone() if cursor.description else cursor.rowcount

    def close(self) -> None:
        """Close the connections."""
        for connection in self.connections:
            connection.close()


class BareLease(Bare):
    """Two updates of one row."""

    def acquire(self) -> None:
        """Acquire the lock if it is free."""
        clock = (
            "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
            if self.postgres
            else "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
        )
        assert self.execute(
            f"UPDATE bench_lock SET token = token + 1, holder = 'me', expires = {clock} + 30000000 "
            f"WHERE name = 'lease' AND (holder IS NULL OR expires < {clock})"
        )

    def release(self) -> None:
        """Release the lock."""
        assert self.execute("UPDATE bench_lock SET holder = NULL WHERE name = 'lease'")


class BareRow(Bare):
    """A transaction with a locked row; counter and record are committed outside of it."""

    def acquire(self) -> None:
        """Acquire the lock."""
        self.execute("BEGIN")
        self.execute("SELECT name FROM bench_lock WHERE name = 'row' FOR UPDATE")
        self.execute(COUNT, on=1)
        self.execute(RECORD_HOLDER, on=1)

    def release(self) -> None:
        """Release the lock."""
        self.execute("ROLLBACK")


class BareAdvisory(Bare):
    """A named lock, a counter and a record."""

    def acquire(self) -> None:
        """Acquire the lock."""
        taken = "SELECT pg_try_advisory_lock(17)" if self.postgres else "SELECT GET_LOCK('17', 0)"
        assert self.execute(taken)[0]
        self.execute(COUNT)
        self.execute(RECORD_HOLDER)

    def release(self) -> None:
        """Release the lock."""
        self.execute(
            "SELECT pg_advisory_unlock(17)" if self.postgres else "SELECT RELEASE_LOCK('17')"
        )
