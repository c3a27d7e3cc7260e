"""The databases: a file, and servers that are started once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.sql.places import ROUTES, Database
from tests.sql.server_locks import ServerLocks

from leaselock.sql import mysql

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """CREATE TABLE account (
    id INTEGER PRIMARY KEY, owner VARCHAR(40), balance INTEGER NOT NULL DEFAULT 0,
    version BIGINT DEFAULT 1, fence BIGINT)"""
KINDS = ["sqlite", "postgres", "mariadb"]


# Asyncio's routes need a driver for asyncio, which the tests have not for SQLite.
PAIRS = [
    (kind, route)
    for kind in KINDS
    for route in ROUTES
    if not (route.coroutine and kind == "sqlite")
    and not (route.name == "async-plain" and kind != "postgres")
]

# Where transactions have locks, and the connections that SQLAlchemy makes there.
SERVERS = ["postgres", "mariadb"]
LOCKED = {"plain", "async-plain", "core", "session", "async-core", "async-session"}
# psycopg has connections for asyncio, PyMySQL has none.
WAYS = [
    (kind, way)
    for kind in SERVERS
    for way in ROUTES
    if way.name in LOCKED and (kind, way.name) != ("mariadb", "async-plain")
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what wants a database on each, and what wants a route by each that leads there."""
    if "way" in metafunc.fixturenames:
        names = [f"{kind}-{way.name}" for kind, way in WAYS]
        metafunc.parametrize(("database", "way"), WAYS, indirect=["database"], ids=names)
    elif {"server_locks", "database"} <= set(metafunc.fixturenames):
        metafunc.parametrize("database", SERVERS, indirect=True)
    elif "route" in metafunc.fixturenames:
        names = [f"{kind}-{route.name}" for kind, route in PAIRS]
        metafunc.parametrize(("database", "route"), PAIRS, indirect=["database"], ids=names)
    elif "database" in metafunc.fixturenames:
        metafunc.parametrize("database", KINDS, indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Each of them, with one account: number 5, which has 100."""
    return filled(request.param, request, tmp_path)


@pytest.fixture
def postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """PostgreSQL alone."""
    return filled("postgres", request, tmp_path)


@pytest.fixture
def mariadb(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """MariaDB alone."""
    return filled("mariadb", request, tmp_path)


@pytest.fixture
def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """SQLite alone."""
    return filled("sqlite", request, tmp_path)


@pytest.fixture
def server_locks(request: pytest.FixtureRequest) -> ServerLocks:
    """Sees what is locked in the database of the test."""
    kind = next((name for name in SERVERS if name in request.fixturenames), None)
    kind = kind or request.getfixturevalue("database").kind
    return ServerLocks(kind, request.getfixturevalue(f"{kind}_server"))


def filled(kind: str, request: pytest.FixtureRequest, folder: Path) -> Database:
    """The database, with a fresh table."""
    if kind == "sqlite":
        found = Database(kind, f"sqlite:///{folder / 'bank.db'}")
    else:
        url = request.getfixturevalue(f"{kind}_server").url
        driver = {"postgres": "postgresql+psycopg", "mariadb": "mysql+pymysql"}[kind]
        found = Database(kind, f"{driver}:{url.partition(':')[2]}")
    found.do("DROP TABLE IF EXISTS account", TABLE)
    if kind == "mariadb":
        found.do(mysql.SCHEMA.replace("TABLE", "TABLE IF NOT EXISTS"))
    found.do("INSERT INTO account (id, owner, balance) VALUES (5, 'ann', 100), (6, 'ben', 100)")
    return found
