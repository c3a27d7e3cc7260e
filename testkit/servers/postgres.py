"""A private PostgreSQL: on a free port of 127.0.0.1, its data in a folder of its own.

One object is one server, the same port and folder for its whole life, whatever happens to the
process in between. It does not run as root, so root starts it as the user of the package.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from glob import glob
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from testkit.servers import versions
from testkit.servers.costs import starting
from testkit.servers.process import HERE, Location, Process, free_port
from tests.surroundings import reachable

STARTS = 5
USER = "leaselock"
SETTINGS = {
    "fsync": "off",
    "max_connections": "300",
    "unix_socket_directories": "",
    "log_min_messages": "fatal",
}


def as_user(name: str) -> list[str]:
    """The command prefix that runs a program as that user, if the test runs as root."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(name)
    drop = ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid)]
    return [*drop, "--clear-groups", "--pdeathsig", "KILL", "--"]


def owned_folder(prefix: str, user: str) -> Path:
    """Return a new folder that belongs to the server's user."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=reachable()))
    if os.geteuid() == 0:
        shutil.chown(folder, user)
    return folder


class Postgres:
    """One server; *settings* are as in postgresql.conf."""

    def __init__(self, location: Location = HERE, **settings: str) -> None:
        chosen = versions.program("postgres")
        programs = [chosen] if chosen else sorted(glob("/usr/lib/postgresql/*/bin/postgres"))
        if not programs:
            pytest.skip("no server: postgresql is not installed")
        self.programs = Path(programs[-1]).parent
        self.folder = owned_folder("postgres-", "postgres")
        self.location = location
        self.settings = {**SETTINGS, "listen_addresses": location.host, **settings}
        self.port = 0
        self.process: Process | None = None
        with starting("PostgreSQL"):
            self._install()
            self.start()

    def _install(self) -> None:
        """Make its data folder."""
        subprocess.run(
            [
                *as_user("postgres"),
                *(str(self.programs / "initdb"), "-D", str(self.folder / "data")),
                *("-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if self.location != HERE:
            with open(self.folder / "data" / "pg_hba.conf", "a") as known:
                known.write("host all all 0.0.0.0/0 trust\n")

    def start(self) -> None:
        """Start it, and wait until it answers; another port if this one was taken meanwhile."""
        first = not self.port
        for _ in range(STARTS):
            self.port = free_port() if first else self.port
            self.process = Process(self._command(), self.folder / "log", self.location)
            if self.process.ready(self.answers):
                return
        raise RuntimeError(f"postgres does not start: {self.process and self.process.output()}")

    def _command(self) -> list[str]:
        words = [f"--{name}={value}" for name, value in self.settings.items()]
        server = str(self.programs / "postgres")
        data = str(self.folder / "data")
        return [*as_user("postgres"), server, "-D", data, "-p", str(self.port), *words]

    @property
    def url(self) -> str:
        """The database that every server has."""
        return f"postgresql://{USER}@{self.location.host}:{self.port}/postgres"

    def answers(self) -> bool:
        """Whether it can be asked."""
        try:
            self.query("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """The rows that a statement brings, on a connection of its own."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    def blocked(self) -> set[int]:
        """The processes of the sessions that wait for a lock."""
        asleep = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return {int(row[0]) for row in self.query(asleep)}

    def running(self) -> Process:
        """Its process, which has been started."""
        assert self.process is not None
        return self.process

    def kill(self) -> None:
        """SIGKILL to the first process; the others end when they notice."""
        self.running().kill()

    def end(self) -> None:
        """End it in order, and its connections with it."""
        process = self.running()
        if process.alive:
            process.popen.send_signal(signal.SIGINT)
            process.popen.wait(30.0)

    def restart(self) -> None:
        """End it and start it again, with its data."""
        self.end()
        self.start()

    def stop(self) -> None:
        """End it for good."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
