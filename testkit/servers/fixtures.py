"""The servers that tests share: once per worker, started by the first test that asks for one.

A plugin of conftest.py alone: a fixture that a test module imports is another fixture, with a
server of its own. A test that kills, freezes or configures a server starts its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testkit.servers.dynamodb import DynamoDB
    from testkit.servers.ensembles import RestrictedEnsemble
    from testkit.servers.etcd import Etcd
    from testkit.servers.kubernetes import KubeApiserver
    from testkit.servers.mariadb import MariaDB
    from testkit.servers.pgbouncer import PgBouncer
    from testkit.servers.postgres import Postgres
    from testkit.servers.s3 import ObjectStore
    from testkit.servers.zookeeper import Ensemble

# The modules of the servers are imported by the fixtures, so that a test without a server needs
# none of their libraries.
T = TypeVar("T", "Postgres", "MariaDB")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """PostgreSQL as it is installed."""
    from testkit.servers.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDB]:
    """MariaDB as it is installed."""
    from testkit.servers.mariadb import MariaDB

    with MariaDB() as server:
        yield server


@pytest.fixture(scope="session")
def postgres(postgres_server: Postgres) -> Postgres:
    """PostgreSQL with leaselock's tables."""
    return _set_up(postgres_server)


@pytest.fixture(scope="session")
def mariadb(mariadb_server: MariaDB) -> MariaDB:
    """MariaDB with leaselock's tables."""
    return _set_up(mariadb_server)


def _set_up(server: T) -> T:
    with leaselock.Client(server.url) as client:
        client.setup()
    return server


@pytest.fixture(scope="session")
def as_worker() -> Callable[[Postgres | MariaDB], str]:
    """The URL of a server for a user with the fewest rights, who is made once."""
    from testkit.servers.databases import minimal

    known: dict[int, str] = {}

    def url(server: Postgres | MariaDB) -> str:
        if server.port not in known:
            known[server.port] = minimal(server)
        return known[server.port]

    return url


@pytest.fixture(scope="session")
def pgbouncer(postgres: Postgres) -> Iterator[PgBouncer]:
    """A proxy that pools transactions, in front of the one PostgreSQL."""
    from testkit.servers.pgbouncer import PgBouncer

    with PgBouncer(postgres) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def etcd() -> Iterator[Etcd]:
    """etcd: one member, without users."""
    from testkit.servers.etcd import Etcd

    with Etcd() as made:
        yield made


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[KubeApiserver]:
    """kube-apiserver, on an etcd of its own."""
    from testkit.servers.kubernetes import KubeApiserver

    with KubeApiserver() as made:
        yield made


@pytest.fixture(scope="session")
def dynamodb() -> Iterator[DynamoDB]:
    """Amazon's DynamoDB for tests, without tables."""
    from testkit.servers.dynamodb import DynamoDB

    with DynamoDB() as server:
        yield server


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """A server with the interface of S3, without buckets."""
    from testkit.servers.s3 import ObjectStore

    with ObjectStore() as server:
        yield server


@pytest.fixture(scope="session")
def ensemble() -> Iterator[Ensemble]:
    """ZooKeeper: three servers."""
    from testkit.servers.zookeeper import Ensemble

    with Ensemble() as made:
        yield made


@pytest.fixture(scope="session")
def restricted(ensemble: Ensemble) -> Iterator[RestrictedEnsemble]:
    """One who makes roots for a user with the fewest rights."""
    from testkit.servers.ensembles import RestrictedEnsemble

    made = RestrictedEnsemble(ensemble)
    yield made
    made.close()
