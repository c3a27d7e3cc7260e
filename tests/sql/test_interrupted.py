"""Interrupted anywhere: a task cancelled at any step, Ctrl-C in a wait. Nothing stays behind."""

from __future__ import annotations

import asyncio
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from tests.sql.places import account
from tests.sql.server_locks import execute, free

from leaselock.errors import AcquireTimeout, StaleVersion
from leaselock.optimistic import compare_and_set
from leaselock.sql import lock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.sql.places import Database
    from tests.sql.server_locks import ServerLocks

NAME = "order:5"
ROW: dict[str, object] = {"id": 5}
SETTING = {
    "postgres": ("SHOW lock_timeout", "0"),
    "mariadb": ("SELECT @@innodb_lock_wait_timeout", 50),
}
# The end of a failed statement is not reported.
SENT, DONE = "before_cursor_execute", "after_cursor_execute"
if TYPE_CHECKING:
    Body = Callable[[AsyncConnection], Coroutine[Any, Any, None]]


async def cancelled_at(engine: AsyncEngine, body: Body, number: int, moment: str) -> list[str]:
    """Cancel it at one of its statements: when that is sent, or has been; those that there were."""
    seen: list[str] = []

    def look(_: object, __: object, statement: str, *___: object) -> None:
        seen.append(statement)
        if len(seen) == number:
            task.cancel()

    async def work() -> None:
        async with engine.begin() as connection:
            await body(connection)
            await connection.rollback()

    sqlalchemy.event.listen(engine.sync_engine, moment, look)
    task = asyncio.ensure_future(work())
    try:
        await task
    except asyncio.CancelledError:
        assert len(seen) >= number
    else:
        assert len(seen) < number
    finally:
        sqlalchemy.event.remove(engine.sync_engine, moment, look)
    return seen


async def sweep(database: Database, body: Body, moment: str, least: int) -> None:
    """Cancel it at each of its statements; the connection is usable afterwards."""
    show, own = SETTING[database.kind]
    engine = create_async_engine(database.async_url, pool_size=1, max_overflow=0)
    number = 0
    seen = [""]
    while len(seen) >= number:
        number += 1
        async with engine.connect() as connection:
            assert await execute(connection, show) == own
        seen = await cancelled_at(engine, body, number, moment)
    assert number > least
    await engine.dispose()


def test_a_lock_that_is_free(database: Database, server_locks: ServerLocks) -> None:
    async def take(connection: AsyncConnection) -> None:
        async with lock(connection, NAME, timeout=0.5):
            await execute(connection, "SELECT 1")

    asyncio.run(sweep(database, take, SENT, 2))
    asyncio.run(sweep(database, take, DONE, 2))
    server_locks.until_nothing_is_held()


def test_a_lock_that_is_held(database: Database, server_locks: ServerLocks) -> None:
    # MySQL's server waits for a whole second, and the rest is spent with looking.
    timeout = {"postgres": 0.1, "mariadb": 1.05}[database.kind]

    async def take(connection: AsyncConnection, timeout: float = timeout) -> None:
        with pytest.raises(AcquireTimeout):
            async with lock(connection, NAME, timeout=timeout):
                pytest.fail("it is held")

    other = database.engine()
    with other.begin() as holder, lock(holder, NAME):
        asyncio.run(sweep(database, take, SENT, 4))
        asyncio.run(sweep(database, partial(take, timeout=0.1), DONE, 1))
    assert free(other, NAME)
    other.dispose()
    server_locks.until_nothing_is_held()


def test_an_optimistic_write(database: Database, server_locks: ServerLocks) -> None:
    async def write(connection: AsyncConnection) -> None:
        await compare_and_set(connection, account, ROW, {"balance": 1}, expected=1)
        with pytest.raises(StaleVersion):
            await compare_and_set(connection, account, ROW, {"balance": 1}, expected=1)

    asyncio.run(sweep(database, write, SENT, 3))
    asyncio.run(sweep(database, write, DONE, 3))
    server_locks.until_nothing_is_held()
    assert database.row() == (100, 1, None)


def test_an_optimistic_write_that_waits(database: Database, server_locks: ServerLocks) -> None:
    engine = database.engine()

    async def main() -> None:
        coloured = create_async_engine(database.async_url)

        async def write() -> None:
            async with coloured.begin() as connection:
                await compare_and_set(connection, account, ROW, {"balance": 1}, expected=1)

        task = asyncio.ensure_future(write())
        await asyncio.to_thread(server_locks.until_blocked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await coloured.dispose()

    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE account SET owner = 'eve' WHERE id = 5"))
        asyncio.run(main())
    engine.dispose()
    server_locks.until_nothing_is_held()
    assert database.row("owner, balance, version") == ("eve", 100, 1)


@pytest.mark.parametrize("timeout", [None, 0.9])
def test_ctrl_c_in_a_wait(
    database: Database, server_locks: ServerLocks, timeout: float | None
) -> None:
    show, own = SETTING[database.kind]
    other = database.engine()
    engine = database.engine(pool_size=1, max_overflow=0)
    if timeout is None:
        press = threading.Thread(target=interrupt, args=[server_locks])
    else:
        press = threading.Timer(0.2, interrupt, args=[None])

    def wait() -> None:
        with engine.begin() as connection, lock(connection, NAME, timeout=timeout):
            pytest.fail("it is held")

    with other.begin() as holder, lock(holder, NAME):
        press.start()
        with pytest.raises(KeyboardInterrupt):
            wait()
        press.join()
        with engine.connect() as connection:
            assert connection.execute(sqlalchemy.text(show)).scalar() == own
    assert free(other, NAME)
    other.dispose()
    engine.dispose()
    server_locks.until_nothing_is_held()


def interrupt(server_locks: ServerLocks | None) -> None:
    """Interrupt the program as soon as a session waits in the server."""
    if server_locks is not None:
        server_locks.until_waiting()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
