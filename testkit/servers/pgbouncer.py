"""A private pgbouncer in front of a PostgreSQL server, on a free port of 127.0.0.1."""

from __future__ import annotations

import shutil
from typing import Protocol, Self

import psycopg
from testkit.servers.costs import starting
from testkit.servers.postgres import USER, as_user, owned_folder
from testkit.servers.process import HOST, Process, free_port, program

STARTS = 5


class Server(Protocol):
    """What it stands before."""

    @property
    def port(self) -> int:
        """Where that listens, on this machine."""
        ...


class PgBouncer:
    """One proxy; *mode* is session, transaction or statement."""

    @starting("pgbouncer")
    def __init__(self, server: Server, mode: str = "transaction") -> None:
        self.folder = owned_folder("pgbouncer-", "postgres")
        for _ in range(STARTS):
            self.port = free_port()
            (self.folder / "ini").write_text(
                "[databases]\n"
                f"* = host={HOST} port={server.port} user={USER}\n"
                "[pgbouncer]\n"
                f"listen_addr = {HOST}\nlisten_port = {self.port}\nunix_socket_dir =\n"
                f"auth_type = any\npool_mode = {mode}\nmax_client_conn = 200\n"
            )
            words = [program("pgbouncer", "/usr/sbin"), str(self.folder / "ini")]
            self.process = Process([*as_user("postgres"), *words], self.folder / "log")
            if self.process.ready(self.answers):
                return
        raise RuntimeError(f"pgbouncer does not start: {self.process.output()}")

    @property
    def url(self) -> str:
        """The server's database, by way of the proxy."""
        return f"postgresql://{USER}@{HOST}:{self.port}/postgres"

    def answers(self) -> bool:
        """Return whether the proxy accepts a connection."""
        try:
            psycopg.connect(self.url, connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """End it for good."""
        self.process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
