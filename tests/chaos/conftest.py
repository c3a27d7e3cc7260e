"""One private Redis for the stories, which empty it; and a private cluster, with a client of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.servers.cluster import Cluster
from tests.servers.redis import Redis
from tests.servers.rights import beside, user

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    # As somebody who may do only what the page lists, redirects in the midst of a move included;
    # and "plain" is not told that the servers have channels of their own.
    worker = user("worker", "pw", "~*", more=beside("a cluster"))
    plain = "user plain on >pw ~* &* +@all -pubsub|shardnumsub"
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
