"""What `doctor` finds in a database: connections for few clients, commits that wait for others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest
from testkit.servers.databases import WORKER
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres
from testkit.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leaselock import Finding

# Of one client: its pool, one for urgent requests, and the listener.
EACH = 2 + 1 + 1


def found(url: str, words: str) -> Finding:
    """Return the only finding with these words."""
    with leaselock.Client(url) as client:
        (finding,) = (finding for finding in client.doctor() if words in finding.what)
    return finding


@pytest.fixture
def limited(
    server: Postgres | MariaDB, as_worker: Callable[[Postgres | MariaDB], str]
) -> Iterator[str]:
    """The URL of a user who may have two clients' connections and a few more."""
    yield limit(server, as_worker(server), 2 * EACH + 3)
    limit(server, as_worker(server), -1)


def limit(server: Postgres | MariaDB, url: str, most: int) -> str:
    """Limit the connections of the worker; -1 is no limit."""
    if isinstance(server, MariaDB):
        server.do(f"ALTER USER {WORKER}@'%' WITH MAX_USER_CONNECTIONS {max(0, most)}")
    else:
        server.query(f"ALTER ROLE {WORKER} CONNECTION LIMIT {most}")
    return url


def test_the_clients_that_fit_are_counted(server: Postgres | MariaDB) -> None:
    """Against the limit of the server, less what it reserves for administrators."""
    usable = 300 if isinstance(server, MariaDB) else 297
    finding = found(server.url, "max_connections is 300")
    assert finding.level == "ok"
    assert f"{usable // EACH} clients of {EACH} connections each fit" in finding.what
    crowded = found(f"{server.url}?pool=60", "max_connections is 300")
    assert crowded.level == "warn"
    assert f"{usable // 62} clients of 62 connections each fit" in crowded.what
    assert "?pool=" in crowded.advice


def test_the_limit_of_a_user_counts(limited: str) -> None:
    finding = found(limited, "connections each fit")
    assert finding.level == "warn"
    assert f"2 clients of {EACH} connections each fit" in finding.what
    assert f"is {2 * EACH + 3}" in finding.what


@pytest.mark.parametrize("protocol", ["row", "advisory"])
def test_a_lock_of_a_session_takes_a_connection(server: Postgres | MariaDB, protocol: str) -> None:
    finding = found(f"{server.url}?protocol={protocol}", "connections each fit")
    assert f"{protocol} takes one more for each lock that is held or waited for" in finding.what


def test_the_limit_of_a_database_counts() -> None:
    with Postgres() as own:
        with leaselock.Client(own.url) as client:
            client.setup()
        own.query("ALTER DATABASE postgres CONNECTION LIMIT 3")
        finding = found(own.url, "connections each fit")
        assert finding.level == "warn"
        assert f"0 clients of {EACH} connections each fit" in finding.what
        assert "the CONNECTION LIMIT of the database is 3" in finding.what


def test_commits_that_wait_to_notify_are_found(postgres: Postgres) -> None:
    """A commit that waits for a standby keeps the lock of notifications, as a slow one does."""
    assert found(postgres.url, "NOTIFY").level == "ok"
    with leaselock.Client(f"{postgres.url}?protocol=row") as client:
        assert not [finding for finding in client.doctor() if "NOTIFY" in finding.what]
    slow = Postgres(synchronous_standby_names="none", synchronous_commit="local")
    with slow as own, ThreadPoolExecutor(2) as threads:
        with leaselock.Client(own.url) as client:
            client.setup()
        blocked = [threads.submit(notify, own.url, table) for table in ("one", "two")]
        eventually(lambda: found(own.url, "NOTIFY").level == "warn")
        assert found(own.url, "NOTIFY").what.endswith("commits that wait for that now: 1")
        eventually(lambda: ended(own) and all(each.done() for each in blocked))
        assert found(own.url, "NOTIFY").level == "ok"


def test_tables_in_other_schemas_are_named(postgres: Postgres) -> None:
    """By lease and row, clients with different search paths do not exclude one another."""
    words = "tables of leaselock are in"
    with leaselock.Client(postgres.url) as client:
        assert not [finding for finding in client.doctor() if words in finding.what]
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "Other"')
    try:
        url = f"{postgres.url}?options=-csearch_path%3D%22Other%22"
        finding = found(url, words)
        assert (finding.level, finding.what) == (
            "warn",
            f"{words} the schema public; the search_path finds none of them",
        )
        with leaselock.Client(url) as other, leaselock.Client(postgres.url) as client:
            other.setup()
            for protocol, excluded in {"lease": False, "row": False, "advisory": True}.items():
                lock, same = (each.lock("a", protocol=protocol) for each in (client, other))
                with lock:
                    lease = same.try_acquire()
                    assert (lease is None) == excluded
                    if lease is not None:
                        lease.release()
        finding = found(url, words)
        assert finding.what == f'{words} several schemas: "Other", public; here "Other" is used'
        assert "search_path" in finding.advice
    finally:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute('DROP SCHEMA "Other" CASCADE')


def notify(url: str, table: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL synchronous_commit TO on")
        connection.execute(f"CREATE TABLE {table} ()")
        connection.execute("NOTIFY someone")


def ended(server: Postgres) -> bool:
    """Let those who wait for a standby go on without one."""
    server.query("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    return True
