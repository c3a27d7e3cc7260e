"""The stores that the table runs on; everything created there is removed in the end.

Names have a random prefix, and nothing without it is changed. In MySQL the tables of leaselock have
fixed names: existing ones stay, created ones are dropped.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import unquote, urlsplit

from verification.hazards.naive_sql import connect, make_table

import leaselock
from leaselock._backends import library

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

PORTS = {"redis": 6379, "redlock": 6379, "zookeeper": 2181, "postgresql": 5432, "mysql": 3306}
KINDS = {"redis": "redis", "valkey": "redis", "sqlite": "sqlite", "zookeeper": "zookeeper"}
KINDS |= {"postgres": "postgresql", "postgresql": "postgresql", "mysql": "mysql"}
KINDS |= {"mariadb": "mysql", "zk": "zookeeper"}
HOSTS = re.compile(r"(?<=://)(?:[^@/,]*@)?([^/?@]+)")
# Leases are short, because trials wait for their end; sessions outlast a busy machine.
LEASE, SESSION = 0.6, 1.5
SQL_SESSION = 2


class FailingStore(Protocol):
    """A private store that fails on request."""

    url: str

    def stop_replication(self) -> None:
        """Stop replication: the replica gets no later writes."""
        ...

    def fail(self) -> None:
        """Fail, and return when the store serves again."""
        ...


class HazardStore:
    """A store and what was created in it. *failures* start private stores that fail, by name."""

    def __init__(
        self,
        url: str,
        failures: dict[str, Callable[[], AbstractContextManager[FailingStore]]] | None = None,
    ) -> None:
        self.given_url = url
        self.kind = kind_of(url)
        self.failures = failures or {}
        self.prefix = f"leaselock_hazards_{os.urandom(4).hex()}"
        self.lease = SESSION if self.kind == "zookeeper" else LEASE
        self.folder = ""
        self.created_tables: list[str] = []
        self.url = url

    @property
    def networked(self) -> bool:
        """Whether there is a network between the store and its programs."""
        return self.kind != "sqlite"

    def __enter__(self) -> Self:
        try:
            getattr(self, f"_create_{self.kind}")()
        except (ImportError, leaselock.LeaselockError):
            raise
        except Exception as error:
            # Each driver has its own errors. The URL may have a password, so it is not shown.
            raise leaselock.NotApplied(f"the {self.kind} store cannot be used: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        getattr(self, f"_remove_{self.kind}")()

    def addresses(self) -> list[tuple[str, int]]:
        """Return the servers of the URL."""
        hosts = ",".join(HOSTS.findall(self.url)).split(",")
        pairs = [host.partition(":")[::2] for host in hosts if host]
        return [(host, int(port or PORTS[self.kind])) for host, port in pairs]

    def url_through(self, ports: list[int]) -> str:
        """Return the URL with its servers replaced by ports of this machine."""
        left = iter(ports)

        def local(found: re.Match[str]) -> str:
            secret = found[0][: -len(found[1])]
            count = found[1].count(",") + 1
            return secret + ",".join(f"127.0.0.1:{next(left)}" for _ in range(count))

        return HOSTS.sub(local, self.url)

    # --- a file -----------------------------------------------------------------------------------

    def _create_sqlite(self) -> None:
        self.folder = tempfile.mkdtemp(prefix=self.prefix)

    def _remove_sqlite(self) -> None:
        shutil.rmtree(self.folder)

    # --- Redis ------------------------------------------------------------------------------------

    def _create_redis(self) -> None:
        for server in self._servers():
            server.ping()

    def _remove_redis(self) -> None:
        for server in self._servers():
            for key in server.scan_iter(match=f"*{self.prefix}*", count=1000):
                server.delete(key)

    def _servers(self) -> list[Any]:
        redis = library("redis", "redis")
        urls = re.split(r",(?=[a-z]+://)", self.given_url)
        return [redis.Redis.from_url(url.partition("?")[0]) for url in urls]

    _create_redlock = _create_redis
    _remove_redlock = _remove_redis

    # --- ZooKeeper --------------------------------------------------------------------------------

    def _create_zookeeper(self) -> None:
        base = self.given_url.partition("?")[0].rstrip("/")
        self.url = f"{base}/{self.prefix}?timeout={SESSION}"

    def _remove_zookeeper(self) -> None:
        parts = urlsplit(self.url)
        client: Any = library("kazoo.client", "zookeeper").KazooClient(parts.netloc)
        client.start()
        client.delete(parts.path, recursive=True)
        client.stop()
        client.close()

    # --- databases --------------------------------------------------------------------------------

    def _create_postgresql(self) -> None:
        self._admin(f"CREATE SCHEMA {self.prefix}")
        words = f"session={SQL_SESSION}&options=-csearch_path%3D{self.prefix}"
        self.url = f"{self.given_url.partition('?')[0]}?{words}"
        self._setup()

    def _remove_postgresql(self) -> None:
        self._admin(f"DROP SCHEMA {self.prefix} CASCADE")

    def _create_mysql(self) -> None:
        self.url = f"{self.given_url.partition('?')[0]}?session={SQL_SESSION}"
        before = self._tables()
        self._setup()
        made = [table for table in self._tables() if table not in before]
        self.created_tables = [table for table in made if table.startswith("leaselock_")]

    def _remove_mysql(self) -> None:
        for table in self.created_tables:
            self._admin(f"DROP TABLE {table}")

    def _tables(self) -> list[str]:
        return [row[0] for row in self._admin("SHOW TABLES")]

    def _setup(self) -> None:
        make_table(self.url)
        with leaselock.Client(self.url) as client:
            client.setup()

    def _admin(self, statement: str) -> list[Any]:
        connection = connect(self.given_url.partition("?")[0])
        cursor = connection.cursor()
        cursor.execute(statement)
        rows = list(cursor.fetchall()) if cursor.description else []
        connection.close()
        return rows

    def cell_url(self, number: int, *, ours: bool) -> str:
        """Return the URL for one cell. Each cell has a file of its own, because a process that is
        stopped within a transaction blocks all users of its file.
        """
        if self.kind != "sqlite":
            return self.url
        url = f"sqlite:///{Path(self.folder) / str(number)}.db"
        if not ours:
            make_table(url)
        return url


def kind_of(url: str) -> str:
    """Return the kind of store of a URL; ValueError for an unsupported one."""
    if url.count("://") > 1:
        return "redlock"
    scheme = urlsplit(url).scheme
    if scheme not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise ValueError(f"no hazards for {unquote(scheme)!r}; supported are {known}")
    return KINDS[scheme]
