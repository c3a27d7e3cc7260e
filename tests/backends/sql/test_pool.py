"""A client whose connections are all busy, or whose requests are cancelled: what it has it keeps
and gives back all the same.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest
from testkit.servers.databases import emptied
from testkit.servers.process import eventually
from tests.backends.sql.sessions import Direct
from tests.backends.sql.stage import Stage

import leaselock
from leaselock._backends.sql import pool
from leaselock._backends.sql.statements import SqlError
from leaselock._backends.sql.store import store_of
from leaselock._backends.sql.url import parsed
from leaselock._core.client import claim_registry
from leaselock._drivers import system_env
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

    from leaselock._backends.sql.executor import Executor

# The statement of ours that waits for a lock: where, and since when.
WAITS = """
    SELECT pid, query_start FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND application_name = 'leaselock'
"""


def test_who_asks_for_more_takes_no_connection_from_who_renews(postgres: Postgres) -> None:
    """The whole pool is in the midst of a question that is not answered (hazard D6)."""
    url = f"{emptied(postgres)}?pool=1"
    with leaselock.Client(url) as client, psycopg.connect(postgres.url) as another:
        for name in ("a", "b"):
            with client.lock(name):
                pass
        lease = client.lock("a", lease=60.0).acquire(timeout=0.0)
        another.execute("SELECT 1 FROM leaselock_lock WHERE name = 'b' FOR UPDATE")
        tokens: list[int] = []

        def ask() -> None:
            with client.lock("b", timeout=30.0) as other:
                tokens.append(other.token)

        thread = threading.Thread(target=ask)
        thread.start()
        eventually(lambda: len(postgres.query(WAITS)) == 1)
        before = postgres.query(WAITS)
        lease.extend(60.0)
        lease.release()
        assert postgres.query(WAITS) == before
        another.rollback()
        thread.join()
        assert len(tokens) == 1


async def cancelled(client: leaselock.AsyncClient, name: str) -> None:
    """Cancel a try when its first request was sent, before the answer can be read."""
    task = asyncio.create_task(client.lock(name).try_acquire())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_request_costs_no_connection(
    server: Postgres | MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is released on the same connection, which need not be made anew."""
    # On a busy machine the answer may take long.
    monkeypatch.setattr(pool, "RESUMING", 60.0)
    monkeypatch.setattr(claim_registry, "TRY_TIMEOUT", 60.0)
    stage = Stage(server, "lease")

    async def main() -> None:
        async with leaselock.AsyncClient(stage.url) as client:
            for _ in range(2):  # then all statements are prepared
                async with client.lock("a"):
                    pass
            before = stage.sessions()
            for number in range(5):
                await cancelled(client, "a")
                async with client.lock("a", timeout=10):
                    pass
                assert stage.sessions() == before, f"cancelled {number + 1} times"

    asyncio.run(main())


def test_an_answer_that_does_not_come_costs_the_connection(postgres: Postgres) -> None:
    """The statement waits for a row that another program has locked."""
    stage = Stage(postgres, "lease")

    async def main() -> None:
        async with leaselock.AsyncClient(stage.url) as client:
            for _ in range(2):
                async with client.lock("a"), client.lock("b"):
                    pass
            before = stage.sessions()
            with psycopg.connect(postgres.url) as another:
                another.execute("SELECT 1 FROM leaselock_lock WHERE name = 'a' FOR UPDATE")
                task = asyncio.create_task(client.lock("a").try_acquire())
                await asyncio.sleep(0)
                task.cancel()
                async with client.lock("b", timeout=10):
                    assert stage.sessions() != before
                another.rollback()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_an_error_in_a_transaction_keeps_its_connection_out_of_the_pool(mariadb: MariaDB) -> None:
    """The answer does not say whether the transaction has ended."""
    direct = Direct(store_of(parsed(emptied(mariadb)), system_env.now))
    connection = direct.connect()
    direct.execute(connection, ("begin",))
    with pytest.raises(SqlError):
        direct.execute(connection, (("raw", {"text": "SELECT 1 FROM nowhere"}),))
    assert not connection.usable
    direct.execute(connection, ("rollback",))
    assert connection.usable
    direct.close()


def test_a_request_that_is_not_answered_in_time_is_not_sent_again(postgres: Postgres) -> None:
    """Other idle connections would only wait for the same row."""
    store = store_of(parsed(emptied(postgres)), system_env.now)
    direct, sent = Direct(store), []
    until = system_env.now()

    async def work(executor: Executor) -> None:
        sent.append(executor.connection.number)
        raise OutcomeUnknown("the server did not answer in time")

    for _ in range(3):
        connection = direct.connect()
        connection.reused = True
        store.pool.idle.append(connection)
    with pytest.raises(OutcomeUnknown):
        direct.run(store.pool.run(work, until, repeatable=True))
    assert len(sent) == 1
    direct.close()
