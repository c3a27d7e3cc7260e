"""Packages that `docs/how-to/migrate.md` names, on databases and DynamoDB,
and those on Redis that cannot be installed beside the others; the page itself plays the rest.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import uuid
from contextlib import ExitStack
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
import pytest
from psycopg.conninfo import conninfo_to_dict
from PyMySQLLock import Locker
from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient, DynamoDBLockError
from testkit.servers.dynamodb import LOGIN, REGION
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from testkit.servers.dynamodb import DynamoDB
    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

pytestmark = pytest.mark.nightly

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


# Programs that say whether they got the lock of argument 1 on the servers after it, and wait for a
# line. redlock installs the same module as redlock-py, aioredlock asks for an older aioredis.
ON_REDIS = {
    "redlock==1.2.0": """
import sys
from redlock import RedLockFactory

name, *urls = sys.argv[1:]
lock = RedLockFactory([{"url": url} for url in urls]).create_lock(name, ttl=60000, retry_times=1)
acquired = lock.acquire()
print(acquired, flush=True)
sys.stdin.readline()
if acquired:
    lock.release()
""",
    "aioredlock==0.7.3": """
import asyncio, sys
from aioredlock import Aioredlock, LockError

async def main(name, *urls):
    manager, lock = Aioredlock(list(urls), retry_count=1), None
    try:
        lock = await manager.lock(name, 60)
    except LockError:
        pass
    print(lock is not None, flush=True)
    sys.stdin.readline()
    if lock is not None:
        await lock.release()
    await manager.destroy()

asyncio.run(main(*sys.argv[1:]))
""",
}
# Seconds for a download.
INSTALL_TIMEOUT = 300.0


@cache
def folder_of(requirement: str) -> Path:
    """A folder with the package and what it needs, installed once."""
    folder = Path.home() / ".cache" / "leaselock-servers" / requirement.replace("==", "-")
    folder /= f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--upgrade")
            done = subprocess.run(
                [*pip, "--target", str(folder), requirement],
                capture_output=True,
                text=True,
                timeout=INSTALL_TIMEOUT,
                check=False,
            )
            if done.returncode:
                pytest.skip(f"no server: {requirement} cannot be installed: {done.stderr[-500:]}")
            (folder / "done").touch()
    return folder


def redis_program(requirement: str, name: str, urls: list[str]) -> subprocess.Popen[str]:
    """Start a program that locks a name with the old package."""
    return subprocess.Popen(
        [sys.executable, "-c", ON_REDIS[requirement], name, *urls],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder_of(requirement))},
    )


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


@pytest.mark.parametrize("masters", [1, 3])
@pytest.mark.parametrize("requirement", list(ON_REDIS))
def test_old_packages_on_redis_exclude_leaselock(requirement: str, masters: int) -> None:
    if requirement.startswith("aioredlock") and sys.version_info >= (3, 12):
        pytest.skip("aioredis 1 needs distutils, which Python 3.12 does not have")
    with ExitStack() as stack:
        urls = [stack.enter_context(Redis()).url for _ in range(masters)]
        client = (
            leaselock.Client(urls[0], protocol="string", prefix="")
            if masters == 1
            else leaselock.Client(urls, prefix="")
        )
        with client:
            theirs = redis_program(requirement, "order:5", urls)
            assert first_line(theirs) == "True"
            assert client.lock("order:5").try_acquire() is None
            ended(theirs)
            with client.lock("order:5", timeout=60, lease=60):
                refused = redis_program(requirement, "order:5", urls)
                assert first_line(refused) == "False"
                ended(refused)
            assert not client.lock("order:5").locked()


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
