"""A database and its replica behind one address, which is redirected on failover.

The replica has everything up to `stop_replication`, and nothing later. So a failover loses later
grants, as with any asynchronous replica.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from testkit.proxy import Proxy
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import USER, Postgres, as_user, owned_folder
from testkit.servers.process import HOST, Process, eventually, free_port

if TYPE_CHECKING:
    from contextlib import ExitStack


class Standby(Postgres):
    """A standby of another server, which replicates through *stream*."""

    def __init__(self, primary: Postgres, stream: Proxy) -> None:
        self.programs = primary.programs
        self.folder = owned_folder("postgres-", "postgres")
        self.settings, self.location = primary.settings, primary.location
        self.port = free_port()
        copy = [str(self.programs / "pg_basebackup"), "-D", str(self.folder / "data")]
        where = ["-h", HOST, "-p", str(stream.port), "-U", USER]
        how = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        subprocess.run([*as_user("postgres"), *copy, *where, *how], check=True)
        self.process: Process | None = None
        self.start()

    def has_replayed(self, position: str) -> bool:
        """Return whether it has replayed the log up to a position."""
        ((done,),) = self.query(f"SELECT pg_last_wal_replay_lsn() >= '{position}'")
        return bool(done)


class PostgresPair:
    """PostgreSQL and its standby."""

    def __init__(self, stack: ExitStack) -> None:
        self.primary = stack.enter_context(Postgres())
        self.stream = stack.enter_context(Proxy(self.primary.port))
        self.standby = stack.enter_context(Standby(self.primary, self.stream))
        self.address = stack.enter_context(Proxy(self.primary.port))
        self.url = f"postgresql://{USER}@{HOST}:{self.address.port}/postgres"

    def stop_replication(self) -> None:
        """Let the standby catch up, then cut it off."""
        ((position,),) = self.primary.query("SELECT pg_current_wal_lsn()")
        eventually(lambda: self.standby.has_replayed(position))
        self.stream.silence()

    def fail(self) -> None:
        """Kill the primary, and promote the standby."""
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

    def stop_replication(self) -> None:
        """Let the replica catch up, then cut it off."""
        ((file, position, *_),) = self.primary.query("SHOW MASTER STATUS")
        ((done,),) = self.replica.query(f"SELECT MASTER_POS_WAIT('{file}', {position}, 30)")
        assert done is not None, "the replica does not follow"
        assert done >= 0, "the replica does not catch up"
        self.stream.silence()

    def fail(self) -> None:
        """Kill the primary, and redirect to the replica."""
        self.primary.kill()
        self.replica.query("STOP SLAVE")
        self.address.target = (HOST, self.replica.port)
        self.address.cut_all()
