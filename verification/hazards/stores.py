"""The stores that the table runs on; everything created there is removed in the end.

Names have a random prefix, and nothing without it is changed. In MySQL the tables of leaselock have
fixed names: existing ones stay, created ones are dropped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from urllib.request import Request, urlopen

from verification.hazards.naive_sql import connect, make_table

import leaselock
from leaselock._backends import library, open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

PORTS = {"redis": 6379, "redlock": 6379, "zookeeper": 2181, "postgresql": 5432, "mysql": 3306}
PORTS |= {"etcd": 2379}
KINDS = {"redis": "redis", "valkey": "redis", "sqlite": "sqlite", "zookeeper": "zookeeper"}
KINDS |= {"postgres": "postgresql", "postgresql": "postgresql", "mysql": "mysql"}
KINDS |= {"mariadb": "mysql", "zk": "zookeeper", "etcd": "etcd", "dynamodb": "dynamodb"}
KINDS |= {"s3": "s3", "kubernetes": "kubernetes"}
# Those whose URL names a server by ?endpoint=, and those that know the time of a reply in whole
# seconds.
ON_AWS = ("dynamodb", "s3")
BY_THE_SECOND = (*ON_AWS, "kubernetes")
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
        # How much later than its end a hold is free: the time in the replies has whole seconds.
        self.uncertainty = 1.5 if self.kind in BY_THE_SECOND else 0.0
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
        if self.kind in BY_THE_SECOND:
            server = urlsplit(self._server())
            return [(str(server.hostname), int(server.port or 0))]
        hosts = ",".join(HOSTS.findall(self.url)).split(",")
        pairs = [host.partition(":")[::2] for host in hosts if host]
        return [(host, int(port or PORTS[self.kind])) for host, port in pairs]

    def url_through(self, ports: list[int]) -> str:
        """Return the URL with its servers replaced by ports of this machine."""
        if self.kind in ON_AWS:
            (port,) = ports
            there, here = (quote(e, safe="") for e in (self._server(), f"http://127.0.0.1:{port}"))
            return self.url.replace(there, here)
        if self.kind == "kubernetes":
            (port,) = ports
            found = Path(self._option("kubeconfig"))
            config = json.loads(found.read_text("utf-8"))
            config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
            other = found.with_name(f"{found.name}-through-{port}")
            other.write_text(json.dumps(config))
            return self.url.replace(str(found), str(other))
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

    # --- etcd, DynamoDB, S3 and Kubernetes --------------------------------------------------------

    def _create_etcd(self) -> None:
        self.url = f"{self.given_url.rstrip('/')}/{self.prefix}"

    def _remove_etcd(self) -> None:
        # The keys from the prefix up to, and not including, the next one of that length.
        first, end = f"/{self.prefix}/", f"/{self.prefix}0"
        body = {"key": first, "range_end": end}
        encoded = {name: b64encode(key.encode()).decode() for name, key in body.items()}
        host, port = self.addresses()[0]
        request = Request(f"http://{host}:{port}/v3/kv/deleterange", json.dumps(encoded).encode())
        with urlopen(request, timeout=10.0):
            pass

    def _create_dynamodb(self) -> None:
        self.url = self.given_url.replace("@hazards?", f"@{self.prefix}?")
        with leaselock.Client(self.url) as client:
            client.setup()

    def _remove_dynamodb(self) -> None:
        self._table().delete()

    def _table(self) -> Any:
        return self._resource().Table(self.prefix)

    def _create_s3(self) -> None:
        self.url = self.given_url.replace("/?", f"/{self.prefix}?")
        with leaselock.Client(self.url) as client:
            client.setup()

    def _remove_s3(self) -> None:
        bucket = urlsplit(self.url).netloc.rpartition("@")[2]
        self._resource().Bucket(bucket).objects.filter(Prefix=f"{self.prefix}/").delete()

    def _resource(self) -> Any:
        login, _, _ = urlsplit(self.url).netloc.rpartition("@")
        user, _, secret = login.partition(":")
        boto3 = library("boto3", self.kind)
        return boto3.resource(
            self.kind,
            region_name=self._option("region"),
            endpoint_url=self._server(),
            aws_access_key_id=user,
            aws_secret_access_key=secret,
        )

    def _create_kubernetes(self) -> None:
        """Use the namespace of the URL: the names of the locks have the prefix."""

    def _remove_kubernetes(self) -> None:
        store: Any = open_store(self.url, time.monotonic).parts[0]
        until, position = time.monotonic() + 30.0, None
        while True:
            page = store.list(position, until)
            for name, found in page.documents:
                if name.startswith(self.prefix):
                    store.delete(name, found.version, until)
            position = page.position
            if position is None:
                break
        store.close()

    def _server(self) -> str:
        if self.kind != "kubernetes":
            return self._option("endpoint")
        config = json.loads(Path(self._option("kubeconfig")).read_text("utf-8"))
        return str(config["clusters"][0]["cluster"]["server"])

    def _option(self, name: str) -> str:
        return parse_qs(urlsplit(self.url).query)[name][0]

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
