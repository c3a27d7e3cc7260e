"""One PostgreSQL and one MariaDB for all tests of a run that want one, with holdfast's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.mariadb import MariaDB
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Postgres

import holdfast

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = ("lock", "waiter", "grave", "wake", "row", "seat")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """It is started by the first test that asks for it."""
    with Postgres() as server:
        with holdfast.Client(server.url) as client:
            client.setup()
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """It is started by the first test that asks for it."""
    with MariaDB() as server:
        with holdfast.Client(server.url) as client:
            client.setup()
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgres: Postgres) -> Iterator[PgBouncer]:
    """A proxy that pools transactions, in front of the one PostgreSQL."""
    with PgBouncer(postgres) as proxy:
        yield proxy


def emptied(server: Postgres | MariaDB) -> str:
    """The URL of a database in which nothing is locked."""
    if isinstance(server, Postgres):
        server.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'holdfast'"
        )
        server.query("TRUNCATE " + ", ".join(f"holdfast_{table}" for table in TABLES))
        return server.url
    numbers = server.query("SELECT id FROM information_schema.processlist WHERE user = 'holdfast'")
    kills = [f"KILL {number}" for (number,) in numbers]
    server.do(*kills, *(f"DELETE FROM locks.holdfast_{table}" for table in TABLES))
    return server.url
