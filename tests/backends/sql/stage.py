"""One database and one protocol under test, and what an administrator sees and does there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.servers.databases import emptied
from testkit.servers.mariadb import MariaDB

import leaselock
from leaselock._backends.sql.keys import ADVISORY, word

if TYPE_CHECKING:
    from testkit.servers.postgres import Postgres

PROTOCOLS = ("lease", "row", "advisory")
DATABASES = ("postgres", "mariadb")
# What the servers say of locks and open transactions of connections of ours.
POSTGRES_LOCKS = """
    SELECT l.locktype, l.mode FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE a.application_name = 'leaselock' AND a.pid <> pg_backend_pid()
"""
MARIADB_LOCKS = """
    SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_rows_locked > 0
    UNION ALL SELECT IS_USED_LOCK('{key}') FROM DUAL WHERE IS_USED_LOCK('{key}') IS NOT NULL
"""


class Stage:
    """A server with nothing locked, and the URL by which one protocol uses it."""

    def __init__(self, server: Postgres | MariaDB, protocol: str, session: float = 5.0) -> None:
        self.server = server
        self.protocol = protocol
        self.url = f"{emptied(server)}?protocol={protocol}&session={session}"
        self.clients: list[leaselock.Client] = []

    def client(self) -> leaselock.Client:
        """Another client."""
        made = leaselock.Client(self.url)
        self.clients.append(made)
        return made

    def table(self, name: str) -> str:
        """One of our tables, as an administrator names it."""
        return f"locks.leaselock_{name}" if self.mariadb else f"leaselock_{name}"

    @property
    def mariadb(self) -> bool:
        """Which dialect it is."""
        return isinstance(self.server, MariaDB)

    def sessions(self) -> list[int]:
        """The numbers of all connections of leaselock's."""
        if self.mariadb:
            asked = "SELECT id FROM information_schema.processlist WHERE user = 'leaselock'"
        else:
            asked = (
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'leaselock' "
                "AND pid <> pg_backend_pid()"
            )
        return [int(row[0]) for row in self.server.query(asked)]

    def holding(self) -> int:
        """The number of the connection that holds."""
        ((number,),) = self.server.query(
            f"SELECT backend FROM {self.table('session')} WHERE token IS NOT NULL"
        )
        return int(number)

    def change(self, statement: str) -> None:
        """What an administrator does."""
        if isinstance(self.server, MariaDB):
            self.server.do(statement)
        else:
            self.server.query(statement)

    def cut(self, *numbers: int) -> None:
        """End connections, as an administrator does."""
        if isinstance(self.server, MariaDB):
            self.server.do(*(f"KILL {number}" for number in numbers))
            return
        for number in numbers:
            self.server.query(f"SELECT pg_terminate_backend({number})")

    def left(self, name: str) -> list[tuple[object, ...]]:
        """The locks that the server still has for us."""
        if self.mariadb:
            return self.server.query(MARIADB_LOCKS.format(key=word(ADVISORY, name)))
        locks = self.server.query(POSTGRES_LOCKS)
        # By protocol "lease" each client that listens holds its liveness key.
        keys = [("advisory", "ExclusiveLock")] if self.protocol == "lease" else []
        return [lock for lock in locks if lock not in keys]

    def close(self) -> None:
        """End the clients."""
        for client in self.clients:
            client.close()
