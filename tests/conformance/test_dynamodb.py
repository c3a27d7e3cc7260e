"""The conformance suite on DynamoDB: Amazon's own engine for tests.

Each scenario has a prefix of its own in one table.
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

    from testkit.servers.dynamodb import DynamoDB


@pytest.fixture(scope="module")
def store(dynamodb: DynamoDB) -> Store:
    """The table of this module."""
    return store_on(dynamodb)


def store_on(dynamodb: DynamoDB) -> Store:
    """A store in a new table."""
    table = f"conformance-{uuid.uuid4().hex[:8]}"
    with leaselock.Client(dynamodb.url(table), op_timeout=60) as client:
        client.setup()
    return Store(
        "dynamodb",
        lambda folder: dynamodb.url(table, prefix=f"{uuid.uuid4().hex}:", poll="0.02"),
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


@pytest.mark.parametrize(("scenario", "driver"), configuration("dynamodb", one_in=4), ids=name)
def test_dynamodb(scenario: Scenario, driver: str, store: Store, tmp_path: Path) -> None:
    run(scenario, store, driver, tmp_path)
