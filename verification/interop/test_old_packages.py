"""Packages that `docs/how-to/move-from-redlock-py-and-others.md` names, on databases and DynamoDB.

Those on Redis are played by the page itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
import pytest
from psycopg.conninfo import conninfo_to_dict
from PyMySQLLock import Locker
from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient, DynamoDBLockError
from testkit.servers.dynamodb import LOGIN, REGION

import leaselock

if TYPE_CHECKING:
    from testkit.servers.dynamodb import DynamoDB
    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

NAME = "leaselock.fajbf2wduk5pvjbctuoupvofstv23b75wk2x2mxsw3olmqgx"
NUMBER = 2887391110611778298
# A program with Django, which says whether it got the lock of argument 2, and waits for a line.
DJANGO = """
import json, sys
import django
from django.conf import settings

settings.configure(DATABASES={"default": json.loads(sys.argv[1])})
django.setup()
from django_pglocks import advisory_lock

with advisory_lock(int(sys.argv[2]), wait=False) as acquired:
    print(acquired, flush=True)
    sys.stdin.readline()
"""


def django_program(postgres: Postgres) -> subprocess.Popen[str]:
    """Start a program that locks our number with django-pglocks."""
    parts = conninfo_to_dict(postgres.url)
    settings = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts["host"],
        "PORT": str(parts.get("port", "")),
    }
    return subprocess.Popen(
        [sys.executable, "-c", DJANGO, json.dumps(settings), str(NUMBER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(program: subprocess.Popen[str]) -> None:
    """Let a program release its lock and end."""
    program.communicate("\n", timeout=60)
    assert program.returncode == 0


def first_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def test_django_pglocks_and_advisory_exclude_each_other(postgres: Postgres) -> None:
    with leaselock.Client(postgres.url, protocol="advisory") as client:
        theirs = django_program(postgres)
        assert first_line(theirs) == "True"
        assert client.lock("jobs").try_acquire() is None
        ended(theirs)
        with client.lock("jobs", timeout=60):
            refused = django_program(postgres)
            assert first_line(refused) == "False"
            ended(refused)


# It calls Event.isSet, which is deprecated.
@pytest.mark.filterwarnings("ignore:isSet:DeprecationWarning")
def test_pymysqllock_and_advisory_exclude_each_other(mariadb: MariaDB) -> None:
    parts = urlsplit(mariadb.url)
    locker = Locker(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.strip("/"),
    )
    theirs = locker.lock(NAME)
    with leaselock.Client(mariadb.url, protocol="advisory") as client:
        assert theirs.acquire(timeout=0)
        assert client.lock("jobs").try_acquire() is None
        theirs.release()
        with client.lock("jobs", timeout=60):
            assert not locker.lock(NAME).acquire(timeout=0)


@pytest.fixture
def tables(dynamodb: DynamoDB, monkeypatch: pytest.MonkeyPatch) -> tuple[DynamoDBLockClient, str]:
    """A client of python-dynamodb-lock with its table, and the URL of a table of ours."""
    table = f"old-{uuid.uuid4().hex[:8]}"
    session = {"region_name": REGION, "endpoint_url": dynamodb.endpoint, **LOGIN}
    DynamoDBLockClient.create_dynamodb_table(boto3.client("dynamodb", **session), table_name=table)
    old = DynamoDBLockClient(boto3.resource("dynamodb", **session), table_name=table)
    return old, dynamodb.url(f"new-{uuid.uuid4().hex[:8]}")


def test_both_locks_of_dynamodb_are_held(tables: tuple[DynamoDBLockClient, str]) -> None:
    old, url = tables
    short = {"retry_period": timedelta(seconds=0.1), "retry_timeout": timedelta(seconds=0.2)}
    with leaselock.Client(url, op_timeout=60) as client:
        client.setup()
        held = old.acquire_lock("order", sort_key="5")
        try:
            with client.lock("order:5", timeout=60) as lease:
                assert lease.token > 0
                assert client.lock("order:5", owner="lock").try_acquire() is None
                with pytest.raises(DynamoDBLockError):
                    old.acquire_lock("order", sort_key="5", **short)
        finally:
            held.release()
    old.close(release_locks=True)


def test_the_old_lock_of_dynamodb_swallows_the_errors_of_its_body(
    tables: tuple[DynamoDBLockClient, str],
) -> None:
    """Why the page does not nest the new lock in it."""
    old, _ = tables
    with old.acquire_lock("order"):
        raise ZeroDivisionError
    old.close(release_locks=True)
