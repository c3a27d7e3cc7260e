"""The conformance suite on Redis: one server in both protocols, a replica, Sentinel, a cluster.

The clients log in as users with only the rights that the store's page lists, to sentinels as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.conformance import Scenario, Store
from testkit.servers.cluster import Cluster
from testkit.servers.redis import Redis
from testkit.servers.rights import additional, asker, of_cluster, user
from testkit.servers.sentinel import Sentinels
from tests.conformance.matrix import configuration, name, protocol, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.no_cover

CONFIRM_WITHIN = 3.0
ALL = "user default on nopass ~* &* +@all"
USERS = (ALL, user("worker", "pw", "~*"))


def users(*topics: str) -> tuple[str, str]:
    """Return the users, with additional rights of the worker."""
    return ALL, user("worker", "pw", "~*", more=[right for t in topics for right in additional(t)])


def store_on(
    name: str,
    url: str,
    servers: Callable[[], Sequence[Redis]],
    protocols: tuple[str, ...] = ("hash", "string"),
) -> Store:
    """Return a store whose servers are emptied for each scenario."""

    def fresh(folder: Path) -> str:
        for server in servers():
            server.ask("FLUSHALL")
        return url

    hashed = protocols[0] == "hash"
    return Store(
        name,
        fresh,
        protocols=protocols,
        # Only the users of a cluster may have keys tracked.
        notifies_holder=name == "cluster",
        confirm_within=CONFIRM_WITHIN,
        lease=0.2,
        min_hold=hashed and name != "replicated",
        sharing=hashed,
        updates=hashed,
        permits=hashed,
    )


def as_worker(server: Redis | Sentinels) -> str:
    return server.url.replace("://", "://worker:pw@")


@pytest.fixture(scope="session")
def single() -> Iterator[Store]:
    with Redis(acl=USERS) as server:
        yield store_on("redis", as_worker(server), lambda: [server])


@pytest.fixture(scope="session")
def string() -> Iterator[Store]:
    with Redis(acl=USERS) as server:
        url = f"{as_worker(server)}?protocol=string"
        yield store_on("string", url, lambda: [server], ("string", "hash"))


@pytest.fixture(scope="session")
def sentinel() -> Iterator[Store]:
    asks = (ALL, asker("asker", "pw2"))
    with Sentinels(acl=users("behind sentinels"), sentinel_acl=asks) as sentinels:
        url = f"{as_worker(sentinels)}?sentinel_username=asker&sentinel_password=pw2"
        yield store_on("sentinel", url, lambda: [sentinels.master])


@pytest.fixture(scope="session")
def replicated() -> Iterator[Store]:
    rights = users("`?replicas=`", "a database other than 0")
    with Redis(acl=rights) as server, Redis(acl=rights, replica_of=server) as replica:
        replica.caught_up()
        url = f"{as_worker(server).removesuffix('/0')}/2?replicas=1"
        yield store_on("replicated", url, lambda: [server])


@pytest.fixture(scope="session")
def cluster() -> Iterator[Store]:
    rights = [*of_cluster(), *additional("watching without polling")]
    with Cluster((ALL, user("worker", "pw", "~*", more=rights)), "worker:pw@") as nodes:
        yield store_on("cluster", nodes.url, nodes.masters)


PARTS = [
    *protocol("redis", "single"),
    *protocol("string", "string"),
    *configuration("sentinel", "sentinel", one_in=4),
    *configuration("cluster", "cluster", one_in=4),
    *configuration("replicated", "replicated", one_in=8),
]


@pytest.mark.parametrize(("topology", "scenario", "driver"), PARTS, ids=name)
def test_redis(
    topology: str,
    scenario: Scenario,
    driver: str,
    request: pytest.FixtureRequest,
    max_waiters: int | None,
    tmp_path: Path,
) -> None:
    store: Store = request.getfixturevalue(topology)
    run(scenario, store, driver, tmp_path, max_waiters)
