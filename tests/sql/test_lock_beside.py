"""Locks of transactions and locks of clients: locks of the same kind exclude each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.sql.server_locks import free

import leaselock
from leaselock.sql import lock

if TYPE_CHECKING:
    from tests.sql.places import Database

NAME = "order:5"
SAME = {"postgres": "advisory", "mariadb": "row"}


@pytest.mark.parametrize("kind", SAME)
def test_a_client_and_a_transaction_exclude_each_other(
    kind: str, request: pytest.FixtureRequest
) -> None:
    database: Database = request.getfixturevalue(kind)
    engine = database.engine()
    url = database.url.replace("+psycopg", "").replace("+pymysql", "")
    with leaselock.Client(url) as client:
        client.setup()
        theirs = client.lock(NAME, protocol=SAME[kind])
        with theirs:
            assert not free(engine, NAME)
        with engine.begin() as connection, lock(connection, NAME, timeout=5):
            assert theirs.try_acquire() is None
            assert theirs.try_acquire(timeout=0.1) is None
        lease = theirs.acquire(timeout=5)
        lease.release()
        client.gc()
    assert free(engine, NAME)
    engine.dispose()
