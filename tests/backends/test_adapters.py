"""The stores of documents keep the contract of an adapter, called directly."""

from __future__ import annotations

import uuid
from itertools import count
from typing import TYPE_CHECKING

import pytest
from testkit.adapter import CHECKS, Check, run_check
from testkit.installed import documents
from testkit.servers.lease_api import LeaseApi
from tests.pace import pace

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testkit.servers.dynamodb import DynamoDB
    from testkit.servers.etcd import Etcd
    from testkit.servers.kubernetes import KubeApiserver
    from testkit.servers.s3 import ObjectStore

NUMBERS = count()


@pytest.fixture(scope="module", autouse=True)
def documents_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with documents(tmp_path_factory.mktemp("site-packages")):
        yield


EACH = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


def run(check: Check, url: str, server: str | None = None) -> None:
    """Run one check; skip it if the store lacks what it is about."""
    if reason := run_check(check, url, server, pace()):
        pytest.skip(reason)


@EACH
@pytest.mark.parametrize("options", ["", "?watch=no&current=no&clock=no"])
def test_memory(check: Check, options: str) -> None:
    run(check, f"documents://adapter{next(NUMBERS)}{options}")


@EACH
def test_folder(check: Check, tmp_path: Path) -> None:
    run(check, f"documents-in://{tmp_path}/documents")


@EACH
def test_etcd(check: Check, etcd: Etcd) -> None:
    run(check, etcd.url(f"adapter{next(NUMBERS)}"), etcd.hosts)


@pytest.fixture(scope="module")
def lease_api() -> Iterator[LeaseApi]:
    with LeaseApi() as server:
        yield server


# The server has its ends of the connections in this process, too; pages are in kubernetes/.
BESIDE = ("close_closes_all_connections", "the_list_has_all_names")


@pytest.mark.parametrize(
    "check",
    [check for check in CHECKS if check.__name__ not in BESIDE],
    ids=lambda check: check.__name__,
)
def test_kubernetes(check: Check, lease_api: LeaseApi) -> None:
    """On a server of the test kit that has Lease objects alone."""
    run(check, lease_api.url(lease_api.namespace()))


@pytest.mark.heavy
@EACH
def test_a_real_kubernetes(check: Check, kubernetes: KubeApiserver) -> None:
    run(check, kubernetes.url(kubernetes.namespace()))


def set_up(server: DynamoDB | ObjectStore) -> str:
    """Make a new table or bucket; return its name."""
    name = f"adapters-{uuid.uuid4().hex[:8]}"
    with leaselock.Client(server.url(name), op_timeout=60) as client:
        client.setup()
    return name


@pytest.fixture(scope="module")
def table(dynamodb: DynamoDB) -> str:
    return set_up(dynamodb)


@pytest.mark.heavy
@EACH
def test_dynamodb(check: Check, dynamodb: DynamoDB, table: str) -> None:
    url = dynamodb.url(table, prefix=f"{uuid.uuid4().hex}:")
    run(check, url, dynamodb.endpoint.removeprefix("http://"))


@pytest.fixture(scope="module")
def bucket(object_store: ObjectStore) -> str:
    return set_up(object_store)


@pytest.mark.heavy
@EACH
@pytest.mark.filterwarnings("ignore:an object store:UserWarning")
def test_s3(check: Check, object_store: ObjectStore, bucket: str) -> None:
    run(
        check,
        object_store.url(bucket, uuid.uuid4().hex),
        object_store.endpoint.removeprefix("http://"),
    )
