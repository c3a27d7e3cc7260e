"""Holds of sessions: what ends a session, what it locks, and the order of tokens."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from testkit.servers.databases import emptied
from testkit.servers.pgbouncer import PgBouncer
from testkit.servers.process import eventually
from tests.backends.rivals import Waiter, take
from tests.backends.sql.sessions import Direct
from tests.backends.sql.stage import PROTOCOLS, Stage
from tests.pace import pace

import leaselock
from leaselock._backends.sql.keys import ADVISORY, number, word
from leaselock._backends.sql.session_locks import SessionLocks
from leaselock._backends.sql.session_state import Session, State
from leaselock._backends.sql.session_views import break_lock
from leaselock._backends.sql.statements import dialect_of
from leaselock._backends.sql.store import store_of
from leaselock._backends.sql.url import parsed
from leaselock._core.contract.backend import Acquire, BreakLock, Busy, Claim, Grant, Mode
from leaselock._drivers import system_env
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.statements import Result, Script

IDLE = (
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "statement_timeout",
    "lock_timeout",
)


def test_the_numbers_of_names_are_as_documented() -> None:
    """The documented numbers, on which all machines must agree."""
    assert number(ADVISORY, "jobs") == 2887391110611778298
    assert word(ADVISORY, "jobs") == "leaselock.fajbf2wduk5pvjbctuoupvofstv23b75wk2x2mxsw3olmqgx"


def test_each_protocol_has_its_own_lock_of_a_name(server: Postgres | MariaDB) -> None:
    """Locks of different protocols do not exclude each other (hazard L4), but tokens increase."""
    stages = [Stage(server, protocol) for protocol in PROTOCOLS]
    leases = [take(each.client(), "a") for each in stages]
    for lease in leases:
        lease.ensure()
    tokens = [lease.token for lease in leases]
    assert tokens == sorted(set(tokens))
    for each, lease in zip(stages, leases, strict=True):
        lease.release()
        each.close()


@pytest.mark.parametrize("protocol", [pytest.param("row", marks=pytest.mark.variant), "advisory"])
def test_settings_that_end_idle_sessions_are_overridden(
    protocol: str, server: Postgres | MariaDB
) -> None:
    """The server's timeouts are far shorter than the hold."""
    stage = Stage(server, protocol)
    if stage.mariadb:
        stage.change("SET GLOBAL wait_timeout = 1")
    else:
        for name in IDLE:
            stage.change(f"ALTER ROLE leaselock SET {name} = '400ms'")
    try:
        lease = take(stage.client(), "a")
        ended = time.monotonic() + 2.0
        eventually(lambda: lease.lost or time.monotonic() > ended)
        lease.ensure()
        lease.release()
    finally:
        if stage.mariadb:
            stage.change("SET GLOBAL wait_timeout = 28800")
        else:
            stage.change("ALTER ROLE leaselock RESET ALL")
        stage.close()


@pytest.mark.parametrize("protocol", ["row", "advisory"])
def test_another_programs_hold_is_shown_and_can_be_broken(
    postgres: Postgres, protocol: str
) -> None:
    """As that of `leaselock.sql.lock`, or of a program that locks our row with its own SQL."""
    stage = Stage(postgres, protocol)
    lock = stage.client().lock("a")
    lock.acquire().release()
    other = psycopg.connect(postgres.url)
    other.execute(
        f"SELECT pg_advisory_xact_lock({number(ADVISORY, 'a')})"
        if protocol == "advisory"
        else "SELECT 1 FROM leaselock_row WHERE name = 'a' FOR UPDATE"
    )
    assert lock.try_acquire() is None
    holder = lock.holder()
    assert holder is not None
    assert f"another program (leaselock, connection {other.info.backend_pid})" in holder.host
    assert (holder.token, holder.pid) == (None, 0)
    assert stage.client().break_lock("a") is not None
    lock.acquire().release()
    other.close()
    stage.close()


@pytest.mark.parametrize("protocol", ["row", "advisory"])
def test_a_late_break_does_not_end_the_next_hold_of_the_session(
    server: Postgres | MariaDB, protocol: str
) -> None:
    """The holder releases its lock, and acquires another one, while the request is on its way."""
    stage = Stage(server, protocol)
    client = stage.client()
    lease = take(client, "a")
    session = stage.holding()
    direct = Direct(store_of(parsed(stage.url), system_env.now))
    locks = SessionLocks(direct.dialect, system_env.now)
    connection = direct.connect()
    next_leases = []

    async def shared(script: Script) -> list[Result]:
        if str(script[0][0]).startswith("end session"):
            lease.release()
            next_leases.append(take(client, "b"))
            assert stage.holding() == session
        return await direct.executor(connection).execute(script)

    request = BreakLock("a", None)
    broken = direct.run(break_lock(locks, protocol, request, shared))
    assert broken.held.token == lease.token
    (held,) = next_leases
    held.release()
    direct.close()
    stage.close()


def test_another_connections_lock_is_shown_in_mariadb(mariadb: MariaDB) -> None:
    stage = Stage(mariadb, "advisory")
    lock = stage.client().lock("a")
    with mariadb.asked() as cursor:
        cursor.execute(f"SELECT GET_LOCK('{word(ADVISORY, 'a')}', 0)")
        holder = lock.holder()
        assert holder is not None
        assert "another program (connection " in holder.host
    lock.acquire(timeout=0)
    stage.close()


def test_an_index_is_created_concurrently_while_a_client_waits(postgres: Postgres) -> None:
    """The statement waits for all open transactions, so a wait of the library ends and repeats."""
    stage = Stage(postgres, "advisory")
    stage.change("CREATE TABLE IF NOT EXISTS indexed (n integer)")
    lease = take(stage.client(), "migration")
    waiter = Waiter(stage.client(), "migration")
    eventually(lambda: len(stage.clients[0].lock("migration").waiters()) == 1)
    # From the holder's session the index would wait for the waiter, which waits for the holder.
    stage.change("CREATE INDEX CONCURRENTLY indexed_n ON indexed (n)")
    assert waiter.granted == float("inf")
    lease.ensure()
    lease.release()
    waiter.join().release()
    stage.change("DROP TABLE indexed")
    stage.close()


def test_a_cancelled_wait_does_not_last_as_long_as_its_statement(
    mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server looks for the end of a connection between two statements; in GET_LOCK, too, but
    once a second.
    """
    monkeypatch.setattr("leaselock._backends.sql.session_backend.MAX_SERVER_WAIT", 50.0)
    monkeypatch.setattr("leaselock._core.client.claim_registry.TRY_TIMEOUT", 20.0)
    statements: Any = dialect_of("mysql").statements
    settings = statements["session settings"]
    patient = settings.replace("innodb_lock_wait_timeout = 1", "innodb_lock_wait_timeout = 60")
    assert patient != settings
    monkeypatch.setitem(statements, "session settings", patient)
    stage = Stage(mariadb, "row", session=3600.0)
    lock = stage.client().lock("a")
    lease = take(stage.clients[0], "a")

    async def cancelled() -> asyncio.CancelledError:
        async with leaselock.AsyncClient(stage.url, op_timeout=30.0) as client:
            wait = asyncio.create_task(client.lock("a").acquire())
            await asyncio.to_thread(eventually, mariadb.blocked)
            wait.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await wait
            assert lock.waiters() == []
            return caught.value

    error = asyncio.run(cancelled())
    assert getattr(error, "__notes__", []) == []
    lease.release()
    stage.close()


def test_row_locks_one_row(mariadb: MariaDB) -> None:
    """The row is found by a unique index, so neighbouring and unused names remain free."""
    stage = Stage(mariadb, "row")
    leases = [take(stage.client(), name) for name in ("b", "a", "c", "aa")]
    ((locked,),) = mariadb.query("SELECT SUM(trx_rows_locked) FROM information_schema.innodb_trx")
    assert locked == len(leases)
    for lease in leases:
        lease.release()
    stage.close()


def test_new_names_in_parallel_do_not_block_each_other(stage: Stage) -> None:
    """Adjacent rows are inserted at the same time (J10)."""
    errors: list[BaseException] = []

    def scenario(n: int) -> None:
        try:
            client = stage.client()
            for m in range(5):
                take(client, f"{m}-{n}").release()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=scenario, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_lease_through_a_proxy_that_pools_transactions(pgbouncer: PgBouncer) -> None:
    """Acquired, waited for, handed over, renewed: no statement relies on the previous session."""
    with leaselock.Client(pgbouncer.url) as one, leaselock.Client(pgbouncer.url) as other:
        lease = take(one, "proxied")
        waiter = Waiter(other, "proxied")
        eventually(lambda: len(one.lock("proxied").waiters()) == 1)
        lease.extend(30.0)
        lease.release()
        released = time.monotonic()
        following = waiter.join()
        assert following.token > lease.token
        assert waiter.granted - released < 2.0 * pace()
        following.release()
        levels = {finding.what: finding.level for finding in one.doctor()}
        assert "warn" in [level for what, level in levels.items() if "proxy" in what]


@pytest.mark.parametrize("protocol", ["row", "advisory"])
def test_a_session_through_such_a_proxy_is_refused(protocol: str, pgbouncer: PgBouncer) -> None:
    with (
        leaselock.Client(f"{pgbouncer.url}?protocol={protocol}") as client,
        pytest.raises(NotApplied, match=r"a proxy is .*, and protocol '\w+' needs a session of"),
    ):
        client.lock("a").acquire(timeout=0)


@pytest.mark.parametrize("protocol", ["row", "advisory"])
def test_a_proxy_that_pools_sessions_is_used_when_the_user_says_so(
    protocol: str, postgres: Postgres
) -> None:
    with PgBouncer(postgres, "session") as proxy:
        url = f"{proxy.url}?proxy=session&protocol={protocol}"
        with leaselock.Client(url) as client:
            lease = take(client, "a")
            with leaselock.Client(url) as rival:
                assert rival.lock("a").try_acquire() is None
            lease.release()


def test_no_connection_is_left_open_when_a_client_is_closed(stage: Stage) -> None:
    client = stage.client()
    take(client, "a").release()
    assert stage.sessions()
    client.close()
    eventually(lambda: not stage.sessions())


def test_a_writer_that_has_waited_becomes_a_reader(postgres: Postgres) -> None:
    """The server counts how often a session takes a lock, so the try after a wait takes none."""
    direct = Direct(store_of(parsed(emptied(postgres)), system_env.now))
    locks = SessionLocks(direct.dialect, system_env.now)

    def begin(mode: Mode) -> tuple[Session, Acquire, Executor]:
        connection = direct.connect()
        session = Session(f"session {connection.backend}", connection.backend)
        claim = Claim("x", f"{mode}:1", mode, 30.0, "{}", 0.0, mode=mode)
        session.serve(claim, "advisory")
        return session, Acquire(claim, True), direct.executor(connection)

    def tried(session: Session, request: Acquire, own: Executor) -> object:
        return direct.run(locks.acquire(session, request, own, own.execute))

    try:
        holder, hold, holding = begin("exclusive")
        assert isinstance(tried(holder, hold, holding), Grant)
        writer, write, own = begin("exclusive")
        assert isinstance(tried(writer, write, own), Busy)
        direct.run(locks.release(holder, holding))
        direct.run(locks.wait(writer, 60.0, own))
        assert writer.state is State.LOCKED
        assert isinstance(tried(writer, write, own), Grant)
        assert isinstance(tried(*begin("shared")), Busy)
        direct.run(locks.weaken(writer, own))
        assert isinstance(tried(*begin("shared")), Grant)
    finally:
        direct.close()
