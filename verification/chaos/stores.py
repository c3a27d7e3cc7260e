"""Private servers without faults, as the stores of the conformance suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.servers.cluster import Cluster
from testkit.servers.databases import minimal
from testkit.servers.dynamodb import DynamoDB
from testkit.servers.ensembles import RestrictedEnsemble
from testkit.servers.etcd import Etcd
from testkit.servers.kubernetes import KubeApiserver
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres
from testkit.servers.redis import Redis
from testkit.servers.s3 import ObjectStore
from testkit.servers.zookeeper import Ensemble
from tests.conformance import test_dynamodb as dynamodb
from tests.conformance import test_etcd as etcd
from tests.conformance import test_kubernetes as kubernetes
from tests.conformance import test_memory, test_redis, test_redlock, test_s3, test_sql, test_sqlite
from tests.conformance import test_zookeeper as zookeeper

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from testkit.conformance import Store


def of_redis(stack: ExitStack) -> Store:
    """One server."""
    server = stack.enter_context(Redis())
    return test_redis.store_on("redis", server.url, lambda: [server])


def of_redis_strings(stack: ExitStack) -> Store:
    """One server, in the other format."""
    server = stack.enter_context(Redis())
    url = f"{server.url}?protocol=string"
    return test_redis.store_on("string", url, lambda: [server], ("string", "hash"))


def of_redis_cluster(stack: ExitStack) -> Store:
    """Three masters, each with a replica."""
    nodes = stack.enter_context(Cluster())
    return test_redis.store_on("cluster", nodes.url, nodes.masters)


def of_redlock(stack: ExitStack) -> Store:
    """Three masters."""
    return test_redlock.store_on([stack.enter_context(Redis()) for _ in range(3)])


def of_zookeeper(stack: ExitStack) -> Store:
    """Three servers."""
    ensemble = RestrictedEnsemble(stack.enter_context(Ensemble()))
    stack.callback(ensemble.close)
    return zookeeper._store(ensemble.fresh, "queue", "single")


def of_etcd(stack: ExitStack) -> Store:
    """One member, which requires a login."""
    server = stack.enter_context(Etcd())
    etcd.restrict(server)
    return etcd.store_on(server)


def of_database(
    kind: Callable[[], Postgres | MariaDB], name: str, protocol: str
) -> Callable[[ExitStack], Store]:
    """One database server."""

    def made(stack: ExitStack) -> Store:
        server = kind()
        stack.enter_context(server)
        with leaselock.Client(server.url) as client:
            client.setup()
        return test_sql.store_on(server, protocol, name, minimal)

    return made


STORES: dict[str, Callable[[ExitStack], Store]] = {
    "memory": lambda stack: test_memory.STORE,
    "sqlite": lambda stack: test_sqlite.STORE,
    "redis": of_redis,
    "redis-string": of_redis_strings,
    "redis-cluster": of_redis_cluster,
    "redlock-3": of_redlock,
    "zookeeper": of_zookeeper,
    "etcd": of_etcd,
    "dynamodb": lambda stack: dynamodb.store_on(stack.enter_context(DynamoDB())),
    "s3": lambda stack: test_s3.store_on(stack.enter_context(ObjectStore())),
    "kubernetes": lambda stack: kubernetes.store_on(stack.enter_context(KubeApiserver())),
} | {
    f"{name}-{protocol}": of_database(kind, name, protocol)
    for kind, name in ((Postgres, "postgres"), (MariaDB, "mariadb"))
    for protocol in test_sql.PROTOCOLS
}
