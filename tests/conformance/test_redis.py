"""The conformance suite on Redis: one server in both protocols, Sentinel, a cluster.

Both protocols are asked by a user who may do only what the page of the store lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conformance.share import name, shared
from tests.servers.cluster import Cluster
from tests.servers.redis import Redis
from tests.servers.rights import user
from tests.servers.sentinel import Sentinels

from holdfast.testing.conformance import DRIVERS, SCENARIOS, Scenario, Store, play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

CLAIM_TIME = 3.0
USERS = ("user default on nopass ~* &* +@all", user("worker", "pw", "~*"))


def store_on(
    name: str,
    url: str,
    servers: Callable[[], Sequence[Redis]],
    protocols: tuple[str, ...] = ("hash", "string"),
) -> Store:
    """A store whose servers are emptied for each scenario."""

    def fresh(folder: Path) -> str:
        for server in servers():
            server.ask("FLUSHALL")
        return url

    return Store(name, fresh, protocols=protocols, claim_time=CLAIM_TIME)


def as_worker(server: Redis) -> str:
    return server.url.replace("redis://", "redis://worker:pw@")


@pytest.fixture(scope="session")
def single() -> Iterator[Store]:
    with Redis(acl=USERS) as server:
        yield store_on("redis", as_worker(server), lambda: [server])


@pytest.fixture(scope="session")
def passing(single: Store) -> Store:
    """The same server; the threads or tasks of each client pass leases among themselves."""
    return single._replace(name="passing", passes=16, fair=False)


@pytest.fixture(scope="session")
def string() -> Iterator[Store]:
    with Redis(acl=USERS) as server:
        url = f"{as_worker(server)}?protocol=string"
        yield store_on("string", url, lambda: [server], ("string", "hash"))


@pytest.fixture(scope="session")
def sentinel() -> Iterator[Store]:
    with Sentinels() as sentinels:
        yield store_on("sentinel", sentinels.url, lambda: [sentinels.master])


@pytest.fixture(scope="session")
def cluster() -> Iterator[Store]:
    with Cluster() as nodes:
        yield store_on("cluster", nodes.url, nodes.masters)


def combinations() -> Iterator[tuple[str, Scenario, str]]:
    for scenario in SCENARIOS:
        yield from (("single", scenario, driver) for driver in DRIVERS)
    yield from shared(("string", "sentinel", "cluster", "passing"))


@pytest.mark.parametrize(("topology", "scenario", "driver"), list(combinations()), ids=name)
def test_redis(
    topology: str,
    scenario: Scenario,
    driver: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    store: Store = request.getfixturevalue(topology)
    if reason := scenario.unfit(store, driver):
        pytest.skip(reason)
    play(scenario, store, driver, tmp_path)
