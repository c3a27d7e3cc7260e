"""What differs between versions of PostgreSQL: what it writes to the disk."""

from __future__ import annotations

import pytest
from testkit.servers.postgres import Postgres
from tests.backends.sql.test_full import fill, on_a_small_disk, space

import leaselock

pytestmark = pytest.mark.nightly
VERSIONS = ("postgres-14", "postgres-16", "postgres-17", "postgres-18")


@pytest.mark.parametrize("version", VERSIONS, indirect=True)
def test_a_full_disk_is_a_failure(version: str) -> None:
    small = Postgres(min_wal_size="32MB", max_wal_size="32MB")
    with small as server, on_a_small_disk(server) as disk:
        with leaselock.Client(server.url) as client:
            client.setup()
        assert space(server.url).level == "ok"
        fill(disk)
        assert space(server.url).level == "fail"
        (disk / "ballast").unlink()
        assert space(server.url).level == "ok"
