"""The private databases do what the tests ask of them."""

from __future__ import annotations

import psycopg
import pytest
from testkit.servers.mariadb import MariaDB
from testkit.servers.pgbouncer import PgBouncer
from testkit.servers.postgres import Postgres

pytestmark = pytest.mark.heavy


def test_postgres_keeps_its_place_and_its_data() -> None:
    with Postgres(idle_session_timeout="9s") as server:
        assert server.query("SHOW idle_session_timeout") == [("9s",)]
        server.query("CREATE TABLE a AS SELECT 1 AS n")
        url = server.url
        server.restart()
        assert server.url == url
        assert server.query("SELECT n FROM a") == [(1,)]
        server.kill()
        assert not server.answers()
    assert not server.folder.exists()


def test_mariadb_keeps_its_place_and_its_data() -> None:
    with MariaDB(**{"wait-timeout": "99"}) as server:
        assert server.query("SELECT @@wait_timeout") == [(99,)]
        server.do("CREATE TABLE locks.a AS SELECT 1 AS n", "KILL 987654")
        url = server.url
        server.restart()
        assert server.url == url
        assert server.query("SELECT n FROM locks.a") == [(1,)]
        server.kill()
        assert not server.answers()
    assert not server.folder.exists()


def test_pgbouncer_lends_one_session_to_many() -> None:
    with Postgres() as server, PgBouncer(server) as proxy:
        sessions = set()
        for _ in range(2):
            with psycopg.connect(proxy.url, autocommit=True) as connection:
                sessions |= set(connection.execute("SELECT pg_backend_pid()").fetchall())
        assert len(sessions) == 1
    assert not proxy.folder.exists()
