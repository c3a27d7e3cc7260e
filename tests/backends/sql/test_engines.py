"""Clients made from a SQLAlchemy engine do not use its pool or its transactions."""

from __future__ import annotations

import asyncio
import ssl
from importlib import import_module
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from testkit.servers.databases import emptied
from testkit.servers.mariadb import MariaDB
from testkit.servers.process import eventually
from tests.backends.rivals import Waiter, take
from tests.backends.sql.stage import PROTOCOLS

import leaselock
from leaselock._backends.sql.engines import target_of
from leaselock._backends.sql.url import parsed

if TYPE_CHECKING:
    from collections.abc import Callable

    from testkit.servers.postgres import Postgres


def url_of(server: Postgres | MariaDB, *, aio: bool = False) -> str:
    """Return the URL in the form that SQLAlchemy expects."""
    url = emptied(server)
    if isinstance(server, MariaDB):
        return url.replace("mysql:", "mysql+aiomysql:" if aio else "mysql+pymysql:")
    return url.replace("postgresql:", "postgresql+psycopg:")


def connect(server: Postgres | MariaDB) -> Any:
    """Open a connection of the user, without an engine."""
    if not isinstance(server, MariaDB):
        return psycopg.connect(server.url)
    to = parsed(server.url)
    words = {"host": to.host, "port": to.port, "user": to.user, "password": to.password}
    return import_module("pymysql").connect(**words, database=to.database)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_engine_is_a_store(server: Postgres | MariaDB, protocol: str) -> None:
    """Acquire, wait and hand over without a connection of the engine's pool."""
    engine = create_engine(url_of(server), pool_size=1, max_overflow=0)
    with engine.connect() as only, leaselock.Client(engine) as one, leaselock.Client(engine) as two:
        only.execute(text("SELECT 1"))
        lease = one.lock("a", protocol=protocol).acquire()
        assert lease is not None
        waiter = Waiter(two, "a") if protocol == "lease" else None
        if waiter is not None:
            eventually(lambda: len(one.lock("a").waiters()) == 1)
        only.rollback()
        lease.ensure()
        lease.release()
        if waiter is not None:
            assert waiter.join().token > lease.token
            waiter.join().release()
        assert engine.pool.checkedout() == 1  # type: ignore[attr-defined]
    engine.dispose()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_engine_with_a_creator_is_a_store(server: Postgres | MariaDB, protocol: str) -> None:
    """The engine's URL has no host, and events of the user set up its connections."""
    scheme = url_of(server).partition("//")[0]
    made: list[Any] = []

    def create() -> Any:
        made.append(connect(server))
        return made[-1]

    engine = create_engine(f"{scheme}//", creator=create)
    seen: list[Any] = []
    event.listen(engine, "connect", lambda connection, _: seen.append(connection))
    with leaselock.Client(engine) as client:
        lock = client.lock("a", protocol=protocol)
        with lock as lease:
            lease.ensure()
        with lock as again:
            assert again.token > lease.token
    assert made
    assert len(seen) == len(made)
    engine.dispose()


def test_a_transaction_of_the_user_is_neither_committed_nor_rolled_back(
    server: Postgres | MariaDB,
) -> None:
    engine = create_engine(url_of(server))
    with leaselock.Client(engine) as client, Session(engine) as session:
        name = "bench_begun" if not isinstance(server, MariaDB) else "begun"
        session.execute(text(f"CREATE TABLE IF NOT EXISTS {name} (n integer)"))
        session.commit()
        session.execute(text(f"INSERT INTO {name} VALUES (1)"))
        take(client, "a").release()
        session.rollback()
        assert session.execute(text(f"SELECT * FROM {name}")).all() == []
        session.rollback()
        session.execute(text(f"DROP TABLE {name}"))
        session.commit()
    engine.dispose()


def test_an_asynchronous_engine_is_a_store(server: Postgres | MariaDB) -> None:
    async def scenario() -> None:
        engine = create_async_engine(url_of(server, aio=True))
        async with leaselock.AsyncClient(engine) as client:
            for protocol in PROTOCOLS:
                async with client.lock("a", protocol=protocol) as lease:
                    lease.ensure()
        await engine.dispose()

    asyncio.run(scenario())


def test_a_password_never_shows(server: Postgres | MariaDB) -> None:
    engine = create_engine(url_of(server))
    with leaselock.Client(engine) as client:
        assert "secret" not in repr(client)
    engine.dispose()


class Asyncpg:
    """As much of asyncpg as SQLAlchemy needs to make an engine that does not connect."""

    paramstyle = "numeric_dollar"


def asyncpg_engine(url: str, **words: Any) -> Any:
    return create_async_engine(url, module=Asyncpg, **words)


def test_the_settings_of_an_engine_on_asyncpg_hold(postgres: Postgres) -> None:
    """Locks are in the schema that the engine's statements use."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA IF NOT EXISTS "of asyncpg"')
    url = postgres.url.replace("postgresql:", "postgresql+asyncpg:")
    words = {"server_settings": {"search_path": '"of asyncpg"'}}
    engine = asyncpg_engine(f"{url}?ssl=disable", connect_args=words)
    try:
        with leaselock.Client(engine) as client:
            client.setup()
            take(client, "a").release()
        with psycopg.connect(postgres.url) as connection:
            found = connection.execute('SELECT name FROM "of asyncpg".leaselock_lock').fetchall()
        assert found == [("a",)]
    finally:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute('DROP SCHEMA "of asyncpg" CASCADE')


ASYNCPG, PSYCOPG = "postgresql+asyncpg://h/d", "postgresql+psycopg://h/d"
NO_CHECK = ssl.create_default_context()
NO_CHECK.check_hostname, NO_CHECK.verify_mode = False, ssl.CERT_NONE


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        (lambda: asyncpg_engine("postgresql+asyncpg://h/d?ssl=verify-full"), "verify-full"),
        (lambda: asyncpg_engine(ASYNCPG, connect_args={"ssl": "require"}), "require"),
        (lambda: asyncpg_engine(ASYNCPG, connect_args={"ssl": False}), "disable"),
        (lambda: asyncpg_engine(ASYNCPG, connect_args={"ssl": NO_CHECK}), "require"),
        (lambda: create_async_engine(PSYCOPG, connect_args={"sslmode": "require"}), "require"),
    ],
)
def test_the_encryption_of_an_engine_holds(engine: Callable[[], Any], options: str) -> None:
    assert target_of(engine()).options == {"sslmode": options}


def test_the_address_in_connect_args_holds() -> None:
    words = {"host": ["one", "two"], "port": [1, 2], "user": "me", "database": "other"}
    target = target_of(asyncpg_engine(ASYNCPG, connect_args=words))
    assert target.options == {"host": "one,two", "port": "1,2"}
    assert (target.user, target.database) == ("me", "other")
    target = target_of(create_async_engine(f"{PSYCOPG}?host=one:1&host=two:2"))
    assert target.options == {"host": "one,two", "port": "1,2"}
    words = {"host": "one", "port": "7", "options": "-csearch_path=app"}
    target = target_of(create_async_engine(PSYCOPG, connect_args=words))
    assert (target.host, target.port, target.options) == ("one", 7, {"options": words["options"]})
    ca = {"unix_socket": "/run/s", "ssl": {"ca": "/ca.pem"}}
    target = target_of(create_async_engine("mysql+aiomysql://h/d", connect_args=ca))
    assert target.options == {"unix_socket": "/run/s", "ssl_ca": "/ca.pem"}


@pytest.mark.parametrize(
    ("url", "words", "problem"),
    [
        (ASYNCPG, {"ssl": True}, "sslmode=verify-full and sslrootcert=FILE"),
        (ASYNCPG, {"ssl": ssl.create_default_context()}, "a context of Python's"),
        (ASYNCPG, {"password": lambda: "token"}, "computes its password"),
        ("mysql+aiomysql://h/d", {"ssl": NO_CHECK}, "ssl_ca=FILE"),
    ],
)
def test_what_cannot_be_translated_is_refused(url: str, words: Any, problem: str) -> None:
    module = {"module": Asyncpg} if "asyncpg" in url else {}
    engine = create_async_engine(url, connect_args=words, **module)
    with pytest.raises(ValueError, match=problem):
        leaselock.AsyncClient(engine)


def test_other_objects_and_databases_are_refused(server: Postgres | MariaDB) -> None:
    engine = create_engine(url_of(server))
    with engine.connect() as connection, pytest.raises(TypeError, match="the engine that it is"):
        leaselock.Client(connection)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="an engine for sqlite is no store"):
        leaselock.Client(create_engine("sqlite://"))
    engine.dispose()
