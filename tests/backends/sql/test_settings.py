"""Locks work with any settings of the server, a role or a database."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
from sqlalchemy import create_engine
from testkit.servers.databases import emptied
from testkit.servers.process import eventually
from tests.backends.rivals import Waiter, take
from tests.backends.sql.stage import PROTOCOLS, Stage

import leaselock
from leaselock._backends.sql.store import store_of
from leaselock._backends.sql.url import parsed
from leaselock._drivers.aio import Aio
from leaselock._drivers.system_env import now
from leaselock._drivers.threads import Threads
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
DOZES = "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'"
RINGS = 200


@pytest.fixture
def limited(mariadb: MariaDB, request: pytest.FixtureRequest) -> Iterator[MariaDB]:
    """A server with a setting for all new sessions."""
    name, value = request.param
    ((before,),) = mariadb.query(f"SELECT @@GLOBAL.{name}")
    mariadb.do(f"SET GLOBAL {name} = {value}")
    yield mariadb
    mariadb.do(f"SET GLOBAL {name} = '{before}'" if value[0] == "'" else f"SET GLOBAL {name} = 0")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_transactions_see_committed_changes_at_any_default_isolation_level(
    postgres: Postgres, protocol: str, level: str
) -> None:
    """A statement that waited for another transaction sees its changes, and is not refused."""
    usual = quote(f"-c default_transaction_isolation={quote(level)}".replace("%20", "\\ "))
    url = f"{emptied(postgres)}?protocol={protocol}&options={usual}"
    with leaselock.Client(url) as client, psycopg.connect(postgres.url) as another:
        take(client, "a").release()
        another.execute("UPDATE leaselock_lock SET metadata = '' WHERE name = 'a'")
        waiter = Waiter(client, "a")
        eventually(lambda: postgres.query(WAITS))
        another.commit()
        waiter.join().release()


def test_a_name_is_the_same_lock_in_any_client_encoding(postgres: Postgres) -> None:
    """The same holds for a URL and for the database."""
    postgres.query("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    url = postgres.url.replace("/postgres", "/latin")
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    stores = [engine, f"{url}?client_encoding=latin1"]
    with leaselock.Client(url) as client:
        client.setup()
        with client.lock("café"):
            for store in stores:
                with leaselock.Client(store) as other:  # type: ignore[arg-type]
                    assert other.lock("café").try_acquire() is None
    engine.dispose()


def test_a_stalled_connection_ends_only_its_own_hold(postgres: Postgres) -> None:
    """Sessions are checked together; a session without a reply ends its own hold only."""
    stage = Stage(postgres, "advisory", session=3.0)
    client = stage.client()
    leases = [take(client, name) for name in ("a", "b", "c")]
    ((number,),) = postgres.query("SELECT backend FROM leaselock_session WHERE name = 'a'")
    os.kill(number, signal.SIGSTOP)
    try:
        eventually(lambda: leases[0].lost)
    finally:
        os.kill(number, signal.SIGCONT)
    for lease in leases[1:]:
        lease.ensure()
    stage.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "limited", [("max_statement_time", "0.3"), ("sql_mode", "'ORACLE'")], indirect=True
)
def test_a_wait_works_with_any_session_limits(limited: MariaDB, protocol: str) -> None:
    stage = Stage(limited, protocol)
    held = take(stage.client(), "a")
    waiter = Waiter(stage.client(), "a")
    eventually(lambda: len(stage.clients[0].lock("a").waiters()) == 1)
    assert stage.client().lock("a").try_acquire(timeout=1.5) is None
    held.release()
    waiter.join().release()
    stage.close()


def test_a_listener_may_be_interrupted_at_any_moment(mariadb: MariaDB) -> None:
    """The interrupt ends any statement of the listening connection, not only its sleep."""
    stage = Stage(mariadb, "lease")
    held = take(stage.client(), "a")
    waiter = Waiter(stage.client(), "a")
    eventually(lambda: mariadb.query(DOZES))
    number = mariadb.query(DOZES)[0][0]
    mariadb.do(*[f"KILL QUERY {number}"] * RINGS)
    held.release()
    waiter.join().release()
    stage.close()


def test_a_listener_that_is_refused_raises_not_applied(
    postgres: Postgres, as_worker: Callable[[Postgres | MariaDB], str]
) -> None:
    """Waiters then ask again by themselves, as the queue expects."""
    url, client = as_worker(postgres), "c" * 32
    key = "FUNCTION pg_try_advisory_lock(bigint)"
    postgres.query(f"REVOKE EXECUTE ON {key} FROM PUBLIC")
    try:
        blocking = store_of(parsed(url), now)
        with pytest.raises(NotApplied, match="pg_try_advisory_lock"):
            Threads((blocking,)).run(blocking.listener.listen(client))

        async def task() -> None:
            store = store_of(parsed(url), now, aio=True)
            await Aio((store,)).run(store.listener.listen(client))

        with pytest.raises(NotApplied, match="pg_try_advisory_lock"):
            asyncio.run(task())
    finally:
        postgres.query(f"GRANT EXECUTE ON {key} TO PUBLIC")


def test_a_failed_try_leaves_nothing_in_memory(postgres: Postgres) -> None:
    stage = Stage(postgres, "lease")
    with stage.client().lock("a"):
        client = stage.client()
        for _ in range(3):
            assert client.lock("a").try_acquire() is None
    assert not client._driver.parts[0].lease.waiting  # type: ignore[attr-defined]
    stage.close()


def test_of_several_servers_the_first_that_answers_is_used(postgres: Postgres) -> None:
    """Hosts are tried in order, as in libpq, also by the non-blocking connection."""
    account = emptied(postgres).rpartition("@")[0]
    url = f"{account}@/postgres?host=127.0.0.1,127.0.0.1&port=1,{postgres.port}"
    url += "&target_session_attrs=read-write"
    with leaselock.Client(url) as client:
        take(client, "a").release()

    async def tasks() -> None:
        async with leaselock.AsyncClient(url) as client, client.lock("a") as lease:
            assert lease.token

    asyncio.run(tasks())
