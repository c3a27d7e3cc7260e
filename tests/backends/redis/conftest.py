"""A private Redis server, which the tests empty, and a private cluster with a client of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from testkit.servers.cluster import Cluster
from testkit.servers.redis import Redis
from testkit.servers.rights import of_cluster, user
from testkit.servers.versions import is_older

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    # "worker" has only the permissions that the page lists, including redirects during a move.
    # "plain" may not ask whether the servers have sharded channels.
    worker = user("worker", "pw", "~*", more=of_cluster())
    plain = "user plain on >pw ~* &* +@all"
    plain += "" if is_older("redis", 7) else " -pubsub|shardnumsub"
    acl = ("user default on nopass ~* &* +@all", worker, plain)
    with Cluster(acl, "worker:pw@") as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[leaselock.Client]:
    with leaselock.Client(cluster.url, op_timeout=30.0) as client:
        yield client


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool
