"""The tables: created only by a command, checked at each connection, and garbage-collected."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest
from testkit.servers.databases import TABLES
from testkit.servers.mariadb import MariaDB
from testkit.servers.process import eventually
from tests.backends.rivals import Waiter, take
from tests.backends.sql.stage import PROTOCOLS, Stage

import leaselock
from leaselock._cli import main
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.postgres import Postgres

WEEK = 7 * 86400 * 1_000_000


@pytest.fixture
def bare(server: Postgres | MariaDB) -> Iterator[str]:
    """The URL of a database without any table."""
    if isinstance(server, MariaDB):
        server.do("CREATE DATABASE bare", "GRANT ALL ON bare.* TO leaselock@'%'")
        yield server.url.replace("/locks", "/bare")
        server.do("DROP DATABASE bare")
    else:
        server.query("CREATE DATABASE bare")
        yield server.url.removesuffix("postgres") + "bare"
        server.query("DROP DATABASE bare WITH (FORCE)")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_missing_tables_are_an_error_that_names_the_command(bare: str, protocol: str) -> None:
    with (
        leaselock.Client(f"{bare}?protocol={protocol}") as client,
        pytest.raises(
            NotApplied, match="no tables of leaselock's: run `leaselock setup '"
        ) as caught,
    ):
        client.lock("a").acquire(timeout=0)
    assert "client.setup()" in str(caught.value)
    user = urlsplit(bare).username
    assert f"leaselock setup '{bare.partition(':')[0]}://{user}@" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_schema_can_be_printed_made_and_made_again(
    bare: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", bare]) == 1
    assert "the tables of leaselock are not there" in capsys.readouterr().out
    assert main(["init", "--print", bare]) == 0
    printed = capsys.readouterr().out
    for table in TABLES:
        assert f"CREATE TABLE IF NOT EXISTS leaselock_{table} (" in printed
    with leaselock.Client(bare) as client:
        with pytest.raises(NotApplied, match="no tables"):
            client.lock("a").acquire(timeout=0)
        for statement in client.setup():
            assert statement in printed
        assert client.setup() == []
        take(client, "a").release()
    assert main(["doctor", bare]) == 0


def test_two_concurrent_setups(bare: str) -> None:
    made: list[list[str]] = []

    def prepare() -> None:
        with leaselock.Client(bare) as client:
            made.append(client.setup())

    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    with leaselock.Client(bare) as client:
        take(client, "a").release()


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0", "layout 0 of an older leaselock, .* drop its tables .* run `leaselock setup '"),
        ("2", "layout 2 of a newer leaselock .* needs layout 1: use that release"),
        ("nonsense", "its layout marker is 'nonsense'"),
    ],
)
def test_tables_of_another_version_are_refused(
    server: Postgres | MariaDB, version: str, words: str
) -> None:
    stage = Stage(server, "lease")
    fact = stage.table("fact")
    key = "fact" if stage.mariadb else "key"
    stage.change(f"UPDATE {fact} SET value = '{version}' WHERE {key} = 'schema'")
    try:
        client = stage.client()
        # `doctor` opens a connection of its own, which does not refuse the tables.
        (failed,) = [finding for finding in client.doctor() if finding.level == "fail"]
        assert re.search(words, failed.what)
        with pytest.raises(NotApplied, match=words) as refused:
            client.lock("a").acquire(timeout=0)
        assert refused.value.reason == "misconfigured"
        with pytest.raises(NotApplied, match=words):
            client.setup()
    finally:
        stage.change(f"UPDATE {fact} SET value = '1' WHERE {key} = 'schema'")
        stage.close()


def test_a_newer_layout_that_admits_this_version_is_used(server: Postgres | MariaDB) -> None:
    stage = Stage(server, "lease")
    fact, key = stage.table("fact"), "fact" if stage.mariadb else "key"
    stage.change(f"UPDATE {fact} SET value = '2 1' WHERE {key} = 'schema'")
    try:
        client = stage.client()
        take(client, "a").release()
        assert client.setup() == []
    finally:
        stage.change(f"UPDATE {fact} SET value = '1' WHERE {key} = 'schema'")
        stage.close()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE leaselock_lock RENAME COLUMN lapsed_offer TO doubt",
        "ALTER TABLE leaselock_fact RENAME COLUMN value TO content",
        "DROP TABLE leaselock_wake",
    ],
)
def test_tables_of_another_version_with_the_same_number_are_refused(
    bare: str, server: Postgres | MariaDB, change: str
) -> None:
    """Columns were renamed once without a new number: no setup helps there, and none is advised
    before the tables are gone.
    """
    refused = "another version of leaselock made its tables, .* drop its tables"
    with leaselock.Client(bare) as client:
        client.setup()
        if isinstance(server, MariaDB):
            server.do("USE bare", change)
        else:
            with psycopg.connect(bare, autocommit=True) as connection:
                connection.execute(change)
        with pytest.raises(NotApplied, match=refused) as caught:
            client.setup()
        assert caught.value.reason == "misconfigured"
        (failed,) = (finding for finding in client.doctor() if finding.level == "fail")
        assert re.search(refused, failed.what)
        if "wake" in change:
            return  # only waiters need it
    with leaselock.Client(bare) as client:
        with pytest.raises(NotApplied, match=refused) as caught:
            client.lock("a").acquire(timeout=0)
        assert caught.value.reason == "misconfigured"


def test_tables_without_a_version_ask_for_setup(server: Postgres | MariaDB) -> None:
    stage = Stage(server, "lease")
    fact, key = stage.table("fact"), "fact" if stage.mariadb else "key"
    stage.change(f"DELETE FROM {fact} WHERE {key} = 'schema'")
    try:
        client = stage.client()
        (failed,) = [finding for finding in client.doctor() if finding.level == "fail"]
        assert "name no version: run `leaselock setup '" in failed.what
        with pytest.raises(NotApplied, match="names no version: run `leaselock setup '"):
            client.lock("a").acquire(timeout=0)
        client.setup()
        take(client, "a").release()
    finally:
        stage.close()


def test_gc_deletes_names_and_tokens_still_increase(stage: Stage) -> None:
    """Rows unused for a week are deleted; tokens increase as if they still existed."""
    client = stage.client()
    old = take(client, "old")
    old.release()
    lease = take(client, "held")
    stage.change(f"UPDATE {stage.table('lock')} SET token = token + {WEEK}")
    stage.change(f"UPDATE {stage.table('lock')} SET since = since - {WEEK + 1}")
    stage.change(f"DELETE FROM {stage.table('session')} WHERE name = 'old'")
    assert client.gc() >= 1
    names = stage.server.query(f"SELECT name FROM {stage.table('lock')}")
    assert [name for (name,) in names if name in ("old", b"old")] == []
    assert len(names) == 1
    lease.ensure()
    fresh = take(client, "old")
    assert fresh.token > old.token + WEEK
    fresh.release()


@pytest.mark.timing
def test_dead_waiters_are_removed(server: Postgres | MariaDB) -> None:
    """By the next request for the lock, or by `gc`."""
    stage = Stage(server, "lease")
    holder, rival = stage.client(), stage.client()
    lease = take(holder, "a")
    waiter = Waiter(rival, "a")
    eventually(lambda: len(holder.lock("a").waiters()) == 1)

    def swept() -> int:
        stage.change(f"UPDATE {stage.table('waiter')} SET expires = 1")
        return holder.gc()

    eventually(swept)
    # The client is alive, and enters the queue again with its next request.
    lease.release()
    waiter.join().release()
    stage.close()


def test_doctor_reports_overridden_settings(
    server: Postgres | MariaDB, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", server.url]) == 0
    output = capsys.readouterr().out
    assert "the tables of leaselock are there, version 1" in output
    assert "no proxy is between the client and the server" in output
    assert "its clock agrees with this machine's" in output
    assert ("wait_timeout" in output) == isinstance(server, MariaDB)


@pytest.mark.heavy
def test_doctor_reports_servers_that_refuse_writes() -> None:
    """Servers with READ COMMITTED and a statement log, and servers that are read-only."""
    with MariaDB(**{"log-bin": "on", "binlog-format": "STATEMENT", "server-id": "1"}) as own:
        with leaselock.Client(own.url) as client:
            with pytest.raises(NotApplied, match="BINLOG_FORMAT = STATEMENT"):
                client.setup()
            assert ("binlog_format is STATEMENT", "set it to ROW or MIXED") in failures(client)
        own.query("SET GLOBAL binlog_format = MIXED")
        with leaselock.Client(own.url) as client:
            client.setup()
            take(client, "a").release()
            assert failures(client) == []
            own.query("SET GLOBAL read_only = ON")
            assert ("the server is read-only", "name the primary") in failures(client)


def failures(client: leaselock.Client) -> list[tuple[str, str]]:
    """Return the failures that the doctor reports."""
    found = [finding for finding in client.doctor() if finding.level == "fail"]
    return [(finding.what.partition(":")[0], finding.advice) for finding in found]
