"""A store that is restored from a backup, as docs/how-to/backup.md says: tokens rise, locks of that
time are free or end, and a run of `once` that was made since the backup is made again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from testkit.servers.databases import TABLES, emptied
from testkit.servers.mariadb import MariaDB
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from testkit.servers.postgres import Postgres

    Backup = tuple[str, Callable[[], None], Callable[[], None]]

SQLITE = """
import sqlite3, sys
source, copy = map(sqlite3.connect, sys.argv[1:])
source.backup(copy)
"""


def of_file(folder: Path) -> Backup:
    """A file, and the functions that copy it and bring the copy back."""
    file, copy = folder / "locks.db", folder / "copy.db"

    def save() -> None:
        # In another process: see the page of the store.
        subprocess.run([sys.executable, "-c", SQLITE, str(file), str(copy)], check=True)

    def restore() -> None:
        for kind in ("", "-wal", "-shm"):
            file.with_name(file.name + kind).unlink(missing_ok=True)
        shutil.copy(copy, file)
        file.chmod(0o600)

    return f"sqlite:///{file}", save, restore


def of_redis(server: Redis) -> Backup:
    """A server, and the functions that copy its snapshot and bring the copy back."""
    snapshot, copy = server.data / "dump.rdb", server.folder / "copy.rdb"

    def save() -> None:
        server.ask("SAVE")
        shutil.copy(snapshot, copy)

    def restore() -> None:
        server.kill()
        shutil.copy(copy, snapshot)
        server.start()

    return server.url, save, restore


def of_database(server: Postgres | MariaDB) -> Backup:
    """A database, and the functions that copy its tables and bring the copies back."""

    def do(*statements: str) -> None:
        if isinstance(server, MariaDB):
            server.do("USE locks", *statements)
        else:
            for statement in statements:
                server.query(statement)

    def save() -> None:
        do(
            *(
                f"CREATE TABLE copy_of_{table} AS SELECT * FROM leaselock_{table}"
                for table in TABLES
            )
        )

    def restore() -> None:
        for table in TABLES:
            do(
                f"DELETE FROM leaselock_{table}",
                f"INSERT INTO leaselock_{table} SELECT * FROM copy_of_{table}",
                f"DROP TABLE copy_of_{table}",
            )

    with leaselock.Client(server.url, op_timeout=60) as client:
        client.setup()
    return emptied(server), save, restore


@pytest.fixture(params=["file", "redis", "postgres", "mariadb"])
def backup(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "file":
        yield of_file(tmp_path)
    elif request.param == "redis":
        with Redis() as server:
            yield of_redis(server)
    else:
        yield of_database(request.getfixturevalue(f"{request.param}_server"))


def test_after_a_restore_tokens_rise_and_locks_are_free_but_periods_go_back(backup: Backup) -> None:
    url, save, restore = backup
    with leaselock.Client(url, op_timeout=60) as client:
        with client.lock("held", lease=0.5):
            save()
        with client.lock("held") as later:
            last = later.token
        turn = client.once("report", every=3600)
        assert turn is not None
        turn.release()
        assert client.once("report", every=3600) is None
    restore()
    with leaselock.Client(url, op_timeout=60) as client:
        with client.lock("held", timeout=60) as lease:
            assert lease.token > last
        again = client.once("report", every=3600)
        assert again is not None
        assert again.token > turn.token
        again.release()
        assert client.once("report", every=3600) is None
