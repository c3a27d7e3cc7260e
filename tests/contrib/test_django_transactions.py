"""Locks and fenced writes in Django's own transactions: on_commit, savepoints, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres

import leaselock

if TYPE_CHECKING:
    from tests.contrib.conftest import Programs

PLAY = """
    import json, os, sys
    import pymysql
    pymysql.install_as_MySQLdb()
    import django
    from django.conf import settings
    settings.configure(DATABASES=json.loads(os.environ["DATABASES"]), USE_TZ=True)
    django.setup()
    from django.db import connection, connections, transaction
    from django.db.utils import ProgrammingError
    import leaselock.sql
    from leaselock import AcquireTimeout, FenceRejected, NotApplied
    from leaselock.optimistic import fenced_write

    def free(name="order:5"):
        with transaction.atomic(using="other"):
            try:
                with leaselock.sql.lock(connections["other"], name, timeout=0):
                    return True
            except AcquireTimeout:
                return False

    def refused(error, function, *args, **how):
        try:
            function(*args, **how)
        except error:
            return True
        return False

    def enter(name, **how):
        with leaselock.sql.lock(connection, name, **how):
            pass

    postgres = connection.vendor == "postgresql"
    committed = []
    assert refused(NotApplied, enter, "order:5")
    with transaction.atomic():
        with leaselock.sql.lock(connection, "order:5", timeout=5):
            transaction.on_commit(lambda: committed.append(free()))
            assert not free()
        assert not free() and committed == []
        with transaction.atomic():
            enter("order:6")
        assert not free("order:6")
        try:
            with transaction.atomic():
                enter("order:7")
                raise KeyError
        except KeyError:
            assert free("order:7") == postgres
    assert committed == [True] and free("order:6") and free("order:7")

    with transaction.atomic(using="other"):
        with leaselock.sql.lock(connections["other"], "order:5"):
            with transaction.atomic():
                for timeout in (0, 0.05):
                    assert refused(AcquireTimeout, enter, "order:5", timeout=timeout)
                with connection.cursor() as cursor:
                    cursor.execute("CREATE TABLE account (id INT PRIMARY KEY, fence BIGINT)"
                                   if postgres else "SELECT 1")
    with connection.cursor() as cursor:
        if not postgres:
            cursor.execute("CREATE TABLE account (id INT PRIMARY KEY, fence BIGINT)")
        cursor.execute("INSERT INTO account (id) VALUES (5)")

    with transaction.atomic():
        assert fenced_write(connection, "account", {"id": 5}, {}, token=7) == 7
    assert refused(FenceRejected, fenced_write, connection, "account", {"id": 5}, {}, token=6)

    def fail():
        with transaction.atomic():
            try:
                with connection.cursor() as cursor, transaction.atomic(savepoint=False):
                    cursor.execute("SELECT * FROM no_such_table")
            except ProgrammingError:
                assert refused(transaction.TransactionManagementError, enter, "order:5")
                raise
    assert refused(ProgrammingError, fail)
    assert free()
    print("played")
"""


@pytest.mark.heavy
@pytest.mark.parametrize("kind", [Postgres, MariaDB], ids=["postgresql", "mysql"])
def test_locks_in_transactions_of_django(
    programs: Programs, kind: type[Postgres | MariaDB], request: pytest.FixtureRequest
) -> None:
    engine = request.node.callspec.id
    with kind() as server:
        with leaselock.Client(server.url) as client:
            client.setup()
        parts = urlsplit(server.url)
        place = f'"NAME": "{parts.path[1:]}", "HOST": "{parts.hostname}", "PORT": "{parts.port}"'
        login = f'"USER": "{parts.username}", "PASSWORD": "{parts.password or ""}"'
        one = f'{{"ENGINE": "django.db.backends.{engine}", {place}, {login}}}'
        programs.write("play.py", PLAY)
        env = {"DATABASES": f'{{"default": {one}, "other": {one}}}'}
        assert programs.start("play", env=env).ended() == "played\n"
