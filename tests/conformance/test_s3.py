"""The conformance suite on a server with the interface of S3, versitygw.

Each scenario has a prefix of its own in one bucket.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from testkit.conformance import Scenario, Store
from tests.conformance.matrix import configuration, name, run

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.servers.s3 import ObjectStore

pytestmark = pytest.mark.filterwarnings("ignore:an object store:UserWarning")


@pytest.fixture(scope="module")
def store(object_store: ObjectStore) -> Store:
    """The bucket of this module."""
    return store_on(object_store)


def store_on(object_store: ObjectStore) -> Store:
    """A store in a new bucket."""
    bucket = f"conformance-{uuid.uuid4().hex[:8]}"
    with leaselock.Client(object_store.url(bucket), op_timeout=60) as client:
        client.setup()
    return Store(
        "s3",
        lambda folder: object_store.url(bucket, uuid.uuid4().hex, poll="0.02"),
        protocols=("document",),
        notifies=False,
        notifies_holder=False,
        min_hold=True,
        sharing=True,
        updates=True,
        permits=True,
        reply_factor=5.0,
        max_waiters=30,
    )


@pytest.mark.parametrize(("scenario", "driver"), configuration("s3", one_in=4), ids=name)
def test_s3(scenario: Scenario, driver: str, store: Store, tmp_path: Path) -> None:
    run(scenario, store, driver, tmp_path)
