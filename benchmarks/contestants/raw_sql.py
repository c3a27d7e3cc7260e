"""The floor under each protocol: the bare statements of the same work, on the usual driver.

Law: what is committed there is committed here, a counter and a note of the holder included; nothing
is checked, nobody is told of a loss, and nobody can wait. psycopg and PyMySQL are used as in their
tutorials.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from leaselock.backends.sql.url import parsed

TABLE = """CREATE TABLE IF NOT EXISTS bench_lock (
    name varchar(64) PRIMARY KEY, token bigint NOT NULL, holder varchar(80), expires bigint)"""
# Who holds, for people to read, as ours write it down.
SEATS = """CREATE TABLE IF NOT EXISTS bench_seat (
    session varchar(80) PRIMARY KEY, name varchar(64), holder varchar(80), since bigint)"""
SEAT = "UPDATE bench_seat SET name = 'bench', holder = 'me', since = since + 1 WHERE session = 'a'"
COUNT = "UPDATE bench_lock SET token = token + 1 WHERE name = 'counter'"
ROWS = ("lease", "row", "counter")


class Raw:
    """One connection that commits each statement, and another."""

    version: ClassVar[str] = "bare"
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.url = Path(folder, "url").read_text()
        self.postgres = self.url.startswith("postgres")
        self.connections = [self._connected(), self._connected()]
        self.cursors = [connection.cursor() for connection in self.connections]
        self.ask(TABLE)
        self.ask("DELETE FROM bench_lock")
        self.ask(SEATS)
        self.ask("DELETE FROM bench_seat")
        self.ask("INSERT INTO bench_seat (session, since) VALUES ('a', 0)")
        for name in ROWS:
            self.ask(f"INSERT INTO bench_lock (name, token) VALUES ('{name}', 0)")

    def _connected(self) -> Any:
        if self.postgres:
            return import_module("psycopg").connect(self.url, autocommit=True)
        to = parsed(self.url)
        words = {"host": to.host, "port": to.port, "user": to.user, "password": to.password}
        return import_module("pymysql").connect(**words, database=to.database, autocommit=True)

    def ask(self, statement: str, on: int = 0) -> Any:
        """Its first row, if it has rows."""
        cursor = self.cursors[on]
        cursor.execute(statement)
        return cursor.fetchone() if cursor.description else cursor.rowcount

    def close(self) -> None:
        """End the sessions."""
        for connection in self.connections:
            connection.close()


class RawLease(Raw):
    """Two writes of one row."""

    def acquire(self) -> None:
        """Take it, if it is free."""
        clock = (
            "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
            if self.postgres
            else "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
        )
        assert self.ask(
            f"UPDATE bench_lock SET token = token + 1, holder = 'me', expires = {clock} + 30000000 "
            f"WHERE name = 'lease' AND (holder IS NULL OR expires < {clock})"
        )

    def release(self) -> None:
        """Give it back."""
        assert self.ask("UPDATE bench_lock SET holder = NULL WHERE name = 'lease'")


class RawRow(Raw):
    """A transaction with a locked row; a counter and a note that are committed outside of it."""

    def acquire(self) -> None:
        """Take it."""
        self.ask("BEGIN")
        self.ask("SELECT name FROM bench_lock WHERE name = 'row' FOR UPDATE")
        self.ask(COUNT, on=1)
        self.ask(SEAT, on=1)

    def release(self) -> None:
        """Give it back."""
        self.ask("ROLLBACK")


class RawAdvisory(Raw):
    """A named lock, a counter and a note."""

    def acquire(self) -> None:
        """Take it."""
        taken = "SELECT pg_try_advisory_lock(17)" if self.postgres else "SELECT GET_LOCK('17', 0)"
        assert self.ask(taken)[0]
        self.ask(COUNT)
        self.ask(SEAT)

    def release(self) -> None:
        """Give it back."""
        self.ask("SELECT pg_advisory_unlock(17)" if self.postgres else "SELECT RELEASE_LOCK('17')")
