"""A database and its replica, behind one address that follows the one that serves.

Law: the replica has all that was there when `lag` was called, and gets nothing after it; so a
failover loses what was granted since, as an asynchronous replica may.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.servers.mariadb import MariaDB
from tests.servers.postgres import USER, Postgres, as_user, owned_folder
from tests.servers.process import HOST, Process, eventually, free_port

from leaselock.testing.proxy import Proxy

if TYPE_CHECKING:
    from contextlib import ExitStack


class Standby(Postgres):
    """A copy of another server, which goes on copying it through *stream*."""

    def __init__(self, primary: Postgres, stream: Proxy) -> None:
        self.programs = primary.programs
        self.folder = owned_folder("postgres-", "postgres")
        self.settings = primary.settings
        self.port = free_port()
        copy = [str(self.programs / "pg_basebackup"), "-D", str(self.folder / "data")]
        where = ["-h", HOST, "-p", str(stream.port), "-U", USER]
        how = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        subprocess.run([*as_user("postgres"), *copy, *where, *how], check=True)
        self.process: Process | None = None
        self.start()

    def has(self, place: str) -> bool:
        """Whether it has got as far as that."""
        ((done,),) = self.query(f"SELECT pg_last_wal_replay_lsn() >= '{place}'")
        return bool(done)


class PostgresPair:
    """PostgreSQL and its standby."""

    def __init__(self, stack: ExitStack) -> None:
        self.primary = stack.enter_context(Postgres())
        self.stream = stack.enter_context(Proxy(self.primary.port))
        self.standby = stack.enter_context(Standby(self.primary, self.stream))
        self.address = stack.enter_context(Proxy(self.primary.port))
        self.url = f"postgresql://{USER}@{HOST}:{self.address.port}/postgres"

    def lag(self) -> None:
        """Let the standby catch up, and get nothing more."""
        ((place,),) = self.primary.query("SELECT pg_current_wal_lsn()")
        eventually(lambda: self.standby.has(place))
        self.stream.silence()

    def strike(self) -> None:
        """The primary dies, the standby is promoted."""
        self.primary.kill()
        self.standby.query("SELECT pg_promote()")
        self.address.target = (HOST, self.standby.port)
        self.address.cut_all()


class MariaPair:
    """MariaDB and its replica."""

    def __init__(self, stack: ExitStack) -> None:
        self.primary = stack.enter_context(MariaDB(**{"server-id": "1", "log-bin": "log"}))
        self.replica = stack.enter_context(MariaDB(**{"server-id": "2"}))
        self.stream = stack.enter_context(Proxy(self.primary.port))
        ((file, position, *_),) = self.primary.query("SHOW MASTER STATUS")
        self.replica.query(
            f"CHANGE MASTER TO MASTER_HOST = '{HOST}', MASTER_PORT = {self.stream.port}, "
            f"MASTER_USER = 'root', MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {position}"
        )
        self.replica.query("START SLAVE")
        self.address = stack.enter_context(Proxy(self.primary.port))
        self.url = f"mysql://leaselock:secret@{HOST}:{self.address.port}/locks"

    def lag(self) -> None:
        """Let the replica catch up, and get nothing more."""
        ((file, position, *_),) = self.primary.query("SHOW MASTER STATUS")
        ((done,),) = self.replica.query(f"SELECT MASTER_POS_WAIT('{file}', {position}, 30)")
        assert done is not None, "the replica does not follow"
        assert done >= 0, "the replica does not catch up"
        self.stream.silence()

    def strike(self) -> None:
        """The primary dies, the replica takes its place."""
        self.primary.kill()
        self.replica.query("STOP SLAVE")
        self.address.target = (HOST, self.replica.port)
        self.address.cut_all()
