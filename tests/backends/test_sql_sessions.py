"""What ends a session, what a session locks, and in which order tokens come."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.backends.rivals import Waiter, take
from tests.backends.sql import PROTOCOLS, Stage
from tests.servers.pgbouncer import PgBouncer
from tests.servers.process import eventually

import leaselock
from leaselock.backends.sql.keys import ADVISORY, number, word
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from tests.servers.mariadb import MariaDB
    from tests.servers.postgres import Postgres

# The most that a name may have.
LONG = "n" * 255
IDLE = (
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "statement_timeout",
    "lock_timeout",
)


def test_the_numbers_of_names_are_these() -> None:
    """What is documented, and what every machine must agree on."""
    assert number(ADVISORY, "jobs") == 2887391110611778298
    assert word(ADVISORY, "jobs") == "leaselock.fajbf2wduk5pvjbctuoupvofstv23b75wk2x2mxsw3olmqgx"


def test_tokens_rise_from_protocol_to_protocol(server: Postgres | MariaDB) -> None:
    """Of one name, in whichever way it is locked."""
    stages = [Stage(server, protocol) for protocol in PROTOCOLS]
    tokens = []
    for each in stages * 3:
        lease = take(each.client(), "a")
        tokens.append(lease.token)
        lease.release()
    assert tokens == sorted(set(tokens))
    for each in stages:
        each.close()


def test_of_one_name_there_is_a_lock_for_each_protocol(server: Postgres | MariaDB) -> None:
    """They do not exclude one another (hazard L4); the later one's token is greater."""
    stages = [Stage(server, protocol) for protocol in PROTOCOLS]
    leases = [take(each.client(), "a") for each in stages]
    for lease in leases:
        lease.ensure()
    tokens = [lease.token for lease in leases]
    assert tokens == sorted(set(tokens))
    for each, lease in zip(stages, leases, strict=True):
        lease.release()
        each.close()


def test_a_token_is_committed_though_the_hold_never_is(stage: Stage) -> None:
    """It is used up when its holder's connection ends in mid-hold, which rolls back."""
    lease = take(stage.client(), "a")
    ((kept,),) = stage.server.query(f"SELECT token FROM {stage.table('lock')}")
    assert kept == lease.token
    stage.cut(*stage.sessions())
    eventually(lambda: stage.protocol == "lease" or lease.lost)
    ((after,),) = stage.server.query(f"SELECT token FROM {stage.table('lock')}")
    assert after == lease.token


def test_long_names_and_names_in_other_letters_are_different_locks(stage: Stage) -> None:
    """Longer than the 64 characters of GET_LOCK; and no case, space or accent is overlooked."""
    client = stage.client()
    names = [LONG, LONG[:-1], "Lock", "lock", "lock ", "löck", "%", "a'b\\"]
    leases = [take(client, name) for name in names]
    assert sorted(report.name for report in client.locks("*")) == sorted(names)
    for lease in leases:
        lease.release()


@pytest.mark.parametrize("protocol", ["row", "advisory"])
def test_what_would_end_an_idle_session_is_overridden(
    protocol: str, server: Postgres | MariaDB
) -> None:
    """The server's settings are far shorter than the hold."""
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


def test_an_index_is_made_concurrently_while_somebody_waits(postgres: Postgres) -> None:
    """It waits for all transactions under way: a wait of ours ends soon, and comes back."""
    stage = Stage(postgres, "advisory")
    stage.change("CREATE TABLE IF NOT EXISTS indexed (n integer)")
    lease = take(stage.client(), "migration")
    waiter = Waiter(stage.client(), "migration")
    eventually(lambda: len(stage.clients[0].lock("migration").waiters()) == 1)
    # By whoever holds the lock: it would wait for the waiter, which waits for it.
    stage.change("CREATE INDEX CONCURRENTLY indexed_n ON indexed (n)")
    assert waiter.granted == float("inf")
    lease.ensure()
    lease.release()
    waiter.join().release()
    stage.change("DROP TABLE indexed")
    stage.close()


def test_row_locks_one_row(mariadb: MariaDB) -> None:
    """It is found by a unique index: neighbours, and names that nobody has used, stay free."""
    stage = Stage(mariadb, "row")
    leases = [take(stage.client(), name) for name in ("b", "a", "c", "aa")]
    ((locked,),) = mariadb.query("SELECT SUM(trx_rows_locked) FROM information_schema.innodb_trx")
    assert locked == len(leases)
    for lease in leases:
        lease.release()
    stage.close()


def test_new_names_in_parallel_do_not_stand_in_each_others_way(stage: Stage) -> None:
    """Rows that are made at the same time, next to one another (J10)."""
    errors: list[BaseException] = []

    def story(n: int) -> None:
        try:
            client = stage.client()
            for m in range(5):
                take(client, f"{m}-{n}", timeout=10.0).release()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=story, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_lease_through_a_proxy_that_pools_transactions(pgbouncer: PgBouncer) -> None:
    """Taken, waited for, handed over, renewed: no statement counts on the session before."""
    with leaselock.Client(pgbouncer.url) as one, leaselock.Client(pgbouncer.url) as other:
        lease = take(one, "proxied")
        waiter = Waiter(other, "proxied")
        eventually(lambda: len(one.lock("proxied").waiters()) == 1)
        lease.extend(30.0)
        lease.release()
        released = time.monotonic()
        following = waiter.join()
        assert following.token > lease.token
        assert waiter.granted - released < 2.0
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
                assert rival.lock("a").acquire(timeout=0) is None
            lease.release()


def test_the_server_is_told_that_we_are_gone_though_we_are_not(stage: Stage) -> None:
    """A server that stops in mid-hold and starts again: nobody believes in what it forgot."""
    if stage.protocol == "lease":
        pytest.skip("the table keeps it")
    lease = take(stage.client(), "a")
    stage.server.restart()
    eventually(lambda: lease.lost)
    following = take(stage.client(), "a")
    assert following.token > lease.token
    following.release()


def test_no_connection_is_left_open_when_a_client_is_closed(stage: Stage) -> None:
    client = stage.client()
    take(client, "a").release()
    assert stage.sessions()
    client.close()
    eventually(lambda: not stage.sessions())


def test_our_transactions_are_none_of_the_users(postgres: Postgres) -> None:
    """A user's connection in mid-transaction neither blocks ours, nor is committed by them."""
    stage = Stage(postgres, "row")
    with psycopg.connect(postgres.url) as mine:
        mine.execute("CREATE TEMP TABLE t (n integer)")
        take(stage.client(), "a").release()
        mine.rollback()
        with pytest.raises(psycopg.errors.UndefinedTable):
            mine.execute("SELECT * FROM t")
    stage.close()
