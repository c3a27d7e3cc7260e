"""The stores that the table is played on, each with a corner of its own that is removed in the end.

Law: nothing is touched but what has our prefix in its name. In MySQL the tables of leaselock have
fixed names: those that are there already stay, and keep rows of our names; those that we made go.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import unquote, urlsplit

import leaselock
from leaselock.backends import library
from leaselock.testing.hazards.naive_sql import connected, make_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

PORTS = {"redis": 6379, "redlock": 6379, "zookeeper": 2181, "postgresql": 5432, "mysql": 3306}
KINDS = {"redis": "redis", "valkey": "redis", "sqlite": "sqlite", "zookeeper": "zookeeper"}
KINDS |= {"postgres": "postgresql", "postgresql": "postgresql", "mysql": "mysql"}
KINDS |= {"mariadb": "mysql", "zk": "zookeeper"}
PLACES = re.compile(r"(?<=://)(?:[^@/,]*@)?([^/?@]+)")
# Leases are short, so that nobody waits long for their end; sessions outlast a busy machine.
LEASE, SESSION = 0.6, 1.5
SQL_SESSION = 2


class Disaster(Protocol):
    """A private store, and something that befalls it when it is told to."""

    url: str

    def lag(self) -> None:
        """From now on, what is written is not safe: a replica gets it no more."""
        ...

    def strike(self) -> None:
        """Let it happen; returns when the store serves again."""
        ...


class Place:
    """A store, and what we made in it. *stages* make private stores for disasters, by name."""

    def __init__(
        self,
        url: str,
        stages: dict[str, Callable[[], AbstractContextManager[Disaster]]] | None = None,
    ) -> None:
        self.given = url
        self.kind = kind_of(url)
        self.stages = stages or {}
        self.prefix = f"leaselock_hazards_{os.urandom(4).hex()}"
        self.lease = SESSION if self.kind == "zookeeper" else LEASE
        self.folder = ""
        self.ours: list[str] = []
        self.url = url

    @property
    def networked(self) -> bool:
        """Whether there is a network between it and its programs."""
        return self.kind != "sqlite"

    def __enter__(self) -> Self:
        try:
            getattr(self, f"_make_{self.kind}")()
        except (ImportError, leaselock.LeaselockError):
            raise
        except Exception as error:
            # Each driver has errors of its own. The URL may have a password, and is not shown.
            raise leaselock.NotApplied(f"the {self.kind} store cannot be used: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        getattr(self, f"_remove_{self.kind}")()

    def addresses(self) -> list[tuple[str, int]]:
        """The servers of the URL."""
        hosts = ",".join(PLACES.findall(self.url)).split(",")
        pairs = [host.partition(":")[::2] for host in hosts if host]
        return [(host, int(port or PORTS[self.kind])) for host, port in pairs]

    def by_way_of(self, ports: list[int]) -> str:
        """The URL, with ports of this machine in place of its servers."""
        left = iter(ports)

        def local(found: re.Match[str]) -> str:
            secret = found[0][: -len(found[1])]
            count = found[1].count(",") + 1
            return secret + ",".join(f"127.0.0.1:{next(left)}" for _ in range(count))

        return PLACES.sub(local, self.url)

    # --- a file -----------------------------------------------------------------------------------

    def _make_sqlite(self) -> None:
        self.folder = tempfile.mkdtemp(prefix=self.prefix)

    def _remove_sqlite(self) -> None:
        shutil.rmtree(self.folder)

    # --- Redis ------------------------------------------------------------------------------------

    def _make_redis(self) -> None:
        for server in self._servers():
            server.ping()

    def _remove_redis(self) -> None:
        for server in self._servers():
            for key in server.scan_iter(match=f"*{self.prefix}*", count=1000):
                server.delete(key)

    def _servers(self) -> list[Any]:
        redis = library("redis", "redis")
        urls = re.split(r",(?=[a-z]+://)", self.given)
        return [redis.Redis.from_url(url.partition("?")[0]) for url in urls]

    _make_redlock = _make_redis
    _remove_redlock = _remove_redis

    # --- ZooKeeper --------------------------------------------------------------------------------

    def _make_zookeeper(self) -> None:
        base = self.given.partition("?")[0].rstrip("/")
        self.url = f"{base}/{self.prefix}?timeout={SESSION}"

    def _remove_zookeeper(self) -> None:
        parts = urlsplit(self.url)
        client: Any = library("kazoo.client", "zookeeper").KazooClient(parts.netloc)
        client.start()
        client.delete(parts.path, recursive=True)
        client.stop()
        client.close()

    # --- databases --------------------------------------------------------------------------------

    def _make_postgresql(self) -> None:
        self._admin(f"CREATE SCHEMA {self.prefix}")
        words = f"session={SQL_SESSION}&options=-csearch_path%3D{self.prefix}"
        self.url = f"{self.given.partition('?')[0]}?{words}"
        self._set_up()

    def _remove_postgresql(self) -> None:
        self._admin(f"DROP SCHEMA {self.prefix} CASCADE")

    def _make_mysql(self) -> None:
        self.url = f"{self.given.partition('?')[0]}?session={SQL_SESSION}"
        before = self._tables()
        self._set_up()
        made = [table for table in self._tables() if table not in before]
        self.ours = [table for table in made if table.startswith("leaselock_")]

    def _remove_mysql(self) -> None:
        for table in self.ours:
            self._admin(f"DROP TABLE {table}")

    def _tables(self) -> list[str]:
        return [row[0] for row in self._admin("SHOW TABLES")]

    def _set_up(self) -> None:
        make_table(self.url)
        with leaselock.Client(self.url) as client:
            client.setup()

    def _admin(self, statement: str) -> list[Any]:
        connection = connected(self.given.partition("?")[0])
        cursor = connection.cursor()
        cursor.execute(statement)
        rows = list(cursor.fetchall()) if cursor.description else []
        connection.close()
        return rows

    def corner(self, number: int, *, ours: bool) -> str:
        """The URL for one cell. Files are its own, since one that stops within a transaction stops
        all that use the same file; and the recipes' table is not in ours.
        """
        if self.kind != "sqlite":
            return self.url
        url = f"sqlite:///{Path(self.folder) / str(number)}.db"
        if not ours:
            make_table(url)
        return url


def kind_of(url: str) -> str:
    """The kind of store that a URL names; ValueError for one that nothing is played on."""
    if url.count("://") > 1:
        return "redlock"
    scheme = urlsplit(url).scheme
    if scheme not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise ValueError(f"hazards are not played on {unquote(scheme)!r}; they are on {known}")
    return KINDS[scheme]
