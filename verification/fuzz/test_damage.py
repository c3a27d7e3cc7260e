"""Records that are damaged at random, one after the other, on every store and in every view."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.damage import (
    ALL,
    JUNK,
    Damage,
    OfCluster,
    in_dynamodb,
    in_kubernetes,
    in_redis,
    in_sessions,
    in_sql,
    in_sqlite,
    in_store,
    in_zookeeper,
)
from testkit.servers.cluster import Cluster
from testkit.servers.databases import emptied
from testkit.servers.lease_api import LeaseApi
from testkit.servers.redis import Redis
from tests.backends.etcd.etcds import now
from tests.views import (
    LIMIT,
    Locks,
    check_calls,
    check_commands,
    check_page,
    check_shown,
    listed,
)
from tests.web.serving import served

import leaselock
from leaselock._backends import open_store
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from leaselock._backends.document.adapter import DocumentStore

LOCKS = 20
# On stores whose requests take milliseconds.
FEW_LOCKS = 8
SEEDS = range(3)
ROOT = "/damaged"
# What stands in a field of JSON.
VALUES: Sequence[object] = (
    None,
    -1,
    0,
    10**400,
    1e300,
    float("nan"),
    True,
    "x" * 5000,
    [],
    {"a": []},
    "\N{SNOWMAN}",
)


def damage(
    url: str,
    damages: Sequence[Damage],
    seed: int,
    kinds: Sequence[str] = ALL,
    locks: int = LOCKS,
) -> None:
    """Damage one of the locks after the other in a random way, and look at all views."""
    random = Random(seed)
    by_name = {f"order:{n}": kinds[n % len(kinds)] for n in range(locks)}
    order = random.sample(list(by_name), locks)
    damaged: list[str] = []
    page_client = partial(leaselock.AsyncClient, url, op_timeout=LIMIT)
    with Locks(url, by_name) as entered, served(page_client) as page:
        for name in order:
            chosen = random.choice([each for each in damages if by_name[name] in each.kinds])
            chosen.act(name, random)
            damaged.append(name)
            sound = random.choice(order)
            found = listed(url)
            check_shown(found, by_name, damaged)
            assert chosen.sees or found[name], chosen.what
            check_calls(url, (name, sound))
            error = entered.tried(name, refuses=chosen.refuses)
            assert error is None or isinstance(error, leaselock.LeaselockError)
            assert isinstance(error, NotApplied) or not chosen.refuses, (chosen.what, error)
            assert error is None or name in str(error)
            assert listed(url) == found, chosen.what
            check_commands(url, found, (name, sound))
            check_page(page, found, (name, sound))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", SEEDS)
def test_in_redis(seed: int) -> None:
    with Redis() as server:
        damage(server.url, in_redis(server), seed)


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
@pytest.mark.parametrize("form", ["string", "setnx", "setnx-expire", "getset", "incr"])
def test_in_formats_whose_lock_is_a_string(form: str) -> None:
    with Redis() as server:
        damage(f"{server.url}?protocol={form}", in_redis(server, form), 0, ("held",))


@pytest.mark.parametrize("seed", SEEDS)
def test_on_one_master_of_a_redlock(seed: int) -> None:
    with ExitStack() as stack:
        masters = [stack.enter_context(Redis()) for _ in range(3)]
        url = ",".join(server.url for server in masters)
        damage(url, in_redis(Random(seed).choice(masters), "vote"), seed, ("held",))


@pytest.mark.parametrize("seed", SEEDS)
def test_in_redis_cluster(seed: int, cluster: Cluster) -> None:
    for master in cluster.masters():
        master.ask("FLUSHALL")
    damage(cluster.url, in_redis(OfCluster(cluster)), seed)


def store_of(url: str) -> DocumentStore:
    """The store of a client."""
    store: Any = open_store(url, now).parts[0]
    return store  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", SEEDS)
def test_in_etcd(seed: int, etcd: Any) -> None:
    url = etcd.url(f"damaged{seed}")
    with closing(store_of(url)) as store:
        damage(url, in_store(store), seed)


@pytest.mark.filterwarnings("ignore:an object store:UserWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_in_s3(seed: int, object_store: Any) -> None:
    url = object_store.url(f"damaged{seed}", "locks", poll="0.02")
    with leaselock.Client(url) as client:
        client.setup()
    with closing(store_of(url)) as store:
        damage(url, in_store(store), seed, locks=FEW_LOCKS)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_dynamodb(seed: int, dynamodb: Any) -> None:
    table = f"damaged{seed}"
    url = dynamodb.url(table, prefix="l:", poll="0.02")
    with leaselock.Client(url, op_timeout=60) as client:
        client.setup()
    with closing(dynamodb.client()) as client:
        damage(url, in_dynamodb(client, table, "l:"), seed, locks=FEW_LOCKS)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_kubernetes(seed: int) -> None:
    with LeaseApi() as api:
        namespace = api.namespace()
        damage(api.url(namespace), in_kubernetes(api, namespace), seed)


def test_in_a_real_kube_apiserver(kubernetes: Any) -> None:
    namespace = kubernetes.namespace()
    damage(kubernetes.url(namespace), in_kubernetes(kubernetes, namespace), 0, locks=FEW_LOCKS)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_sqlite(seed: int, tmp_path: Path) -> None:
    path = f"{tmp_path}/locks.db"
    damage(f"sqlite:///{path}", in_sqlite(path), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_postgres(seed: int, postgres: Any) -> None:
    damage(emptied(postgres), in_sql(postgres), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_mariadb(seed: int, mariadb: Any) -> None:
    damage(emptied(mariadb), in_sql(mariadb), seed)


@pytest.mark.parametrize(("seed", "protocol"), [(0, "row"), (1, "advisory")])
def test_of_sessions_in_postgres(seed: int, protocol: str, postgres: Any) -> None:
    url = f"{emptied(postgres)}?protocol={protocol}"
    damage(url, in_sessions(postgres), seed, ("held", "waited", "readers"))


@pytest.mark.parametrize(("seed", "protocol"), [(0, "row"), (1, "advisory")])
def test_of_sessions_in_mariadb(seed: int, protocol: str, mariadb: Any) -> None:
    url = f"{emptied(mariadb)}?protocol={protocol}"
    kinds = ("held", "waited", "readers") if protocol == "row" else ("held", "waited")
    damage(url, in_sessions(mariadb), seed, kinds)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_zookeeper(seed: int, ensemble: Any) -> None:
    client = KazooClient(ensemble.hosts)
    client.start()
    try:
        url = f"zookeeper://{ensemble.hosts}{ROOT}"
        damage(url, in_zookeeper(client, ROOT), seed, ("held", "waited", "permits"))
        client.delete(ROOT, recursive=True)
    finally:
        client.stop()
        client.close()


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
@pytest.mark.parametrize("protocol", ["queue", "single"])
@pytest.mark.parametrize("seed", SEEDS)
def test_data_of_nodes_in_zookeeper(seed: int, protocol: str, ensemble: Any) -> None:
    """Any data is that of another program: the lock is shown, and stays held."""
    random = Random(seed)
    kinds = {"a:1": "held", "b:2": "waited", "c:3": "permits", "d:4": "readers"}
    if protocol == "single":
        kinds = dict.fromkeys(kinds, "held")
    client = KazooClient(ensemble.hosts)
    client.start()
    url = f"zookeeper://{ensemble.hosts}{ROOT}?protocol={protocol}"
    try:
        with Locks(url, kinds) as locks, served(lambda: leaselock.AsyncClient(url)) as page:
            nodes = [
                f"{ROOT}/{name}/{child}"
                for name in kinds
                for child in client.get_children(f"{ROOT}/{name}")
            ] or [f"{ROOT}/{name}" for name in kinds]
            for path in random.sample(nodes, len(nodes)):
                data, _ = client.get(path)
                client.set(path, damaged_json(data, random))
                found = listed(url)
                assert found.keys() == kinds.keys()
                name = path.split("/")[2]
                check_calls(url, (name,))
                error = locks.tried(name)
                assert error is None or name in str(error)
                check_commands(url, found, (name,))
                check_page(page, found, (name,))
        client.delete(ROOT, recursive=True)
    finally:
        client.stop()
        client.close()


def damaged_json(data: bytes, random: Random) -> bytes:
    """The data of a node with another value in some of its fields; or no JSON at all."""
    if not data or random.random() < 0.2:
        return random.choice(JUNK).encode()
    fields = json.loads(data)
    for field in random.sample(sorted(fields), 2):
        fields[field] = random.choice(VALUES)
    return json.dumps(fields).encode()
