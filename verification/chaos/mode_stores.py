"""The stores for tests of read/write locks and semaphores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.servers.databases import emptied
from testkit.servers.ensembles import fresh
from tests.pace import pace

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.servers.etcd import Etcd
    from testkit.servers.redis import Redis

    import leaselock

LEASE = 1.5
SESSION = 3.0
# These keep the order of arrival, so that no claim can be starved.
ORDERED = ("sqlite", "redis", "zookeeper", "etcd", "postgres-lease", "mariadb-lease")
STORES = (*ORDERED, "postgres-row", "postgres-advisory", "mariadb-row")


def url_of(name: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of a store without locks."""
    kind, _, protocol = name.partition("-")
    if kind == "sqlite":
        return f"sqlite:///{folder}/locks.db"
    if kind == "redis":
        server: Redis = request.getfixturevalue("redis")
        server.ask("FLUSHALL")
        return server.url
    if kind == "etcd":
        etcd: Etcd = request.getfixturevalue("etcd")
        return etcd.url(f"modes-{folder.name}")
    if kind == "zookeeper":
        return fresh(request.getfixturevalue("ensemble"), timeout=SESSION)
    query = f"protocol={protocol}&session={SESSION}"
    return f"{emptied(request.getfixturevalue(kind))}?{query}"


def sides(client: leaselock.Client, name: str = "a") -> leaselock.RWLock:
    """A read/write lock, where the store has them."""
    try:
        return client.rwlock(name, lease=LEASE * pace())
    except ValueError as refusal:
        pytest.skip(str(refusal))


def semaphore(client: leaselock.Client, permits: int) -> leaselock.Semaphore:
    """A semaphore, where the store has them."""
    try:
        return client.semaphore("s", permits=permits, lease=LEASE * pace())
    except ValueError as refusal:
        pytest.skip(str(refusal))
