"""Passwords that expire, as cloud services issue them: each connection asks for the current one.

The programs are those of docs/how-to/managed-stores.md, on servers that really check passwords.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis as redis_py
import redis.asyncio as redis_aio
from sqlalchemy import create_engine, event
from testkit.servers.postgres import Postgres
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from testkit.servers.resp import Wire

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.mariadb import MariaDB

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "managed-stores.md"
RULES = "on >{} ~* &* +@all"


class Service:
    """Issues passwords; the one before stops being valid."""

    def __init__(self) -> None:
        self.number = 0
        self.issued = 0
        self.prefix = "token"

    @property
    def password(self) -> str:
        return f"{self.prefix}-{self.number}"


class Provider(redis_py.CredentialProvider):
    """Gives each connection the current password."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def get_credentials(self) -> tuple[str, str]:
        self.service.issued += 1
        return "locks", self.service.password


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def guarded(service: Service) -> Iterator[Redis]:
    """A Redis whose user `locks` has the service's password."""
    admin = "user default on nopass ~* &* +@all"
    with Redis(acl=[admin, f"user locks {RULES.format(service.password)}"]) as server:
        yield server


def rotate(server: Redis, service: Service) -> None:
    """Make the service's next password the only one, and end all connections of the user."""
    service.number += 1
    with Wire(server.port) as wire:
        wire.ask("ACL", "SETUSER", "locks", "resetpass", f">{service.password}")
        wire.ask("CLIENT", "KILL", "USER", "locks")


def test_redis_asks_its_provider_for_each_connection(guarded: Redis, service: Service) -> None:
    given = redis_py.Redis(port=guarded.port, credential_provider=Provider(service))
    with leaselock.Client(given) as client, client.lock("before") as lease:
        rotate(guarded, service)
        with client.lock("after", timeout=10):
            lease.ensure()
    assert service.issued >= 2
    given.close()


def test_redis_asyncio_asks_its_provider_for_each_connection(
    guarded: Redis, service: Service
) -> None:
    async def main() -> None:
        given = redis_aio.Redis(port=guarded.port, credential_provider=Provider(service))
        async with leaselock.AsyncClient(given) as client, client.lock("before") as lease:
            await asyncio.to_thread(rotate, guarded, service)
            async with client.lock("after", timeout=10):
                lease.ensure()
        await given.aclose()

    asyncio.run(main())
    assert service.issued >= 2


@pytest.fixture
def checking(service: Service) -> Iterator[Postgres]:
    """A PostgreSQL whose user `locks` has the service's password."""
    with Postgres() as server:
        server.query(f"CREATE ROLE locks LOGIN SUPERUSER PASSWORD '{service.password}'")
        rules = server.folder / "data" / "pg_hba.conf"
        rules.write_text("host all locks 127.0.0.1/32 scram-sha-256\n" + rules.read_text("utf-8"))
        server.query("SELECT pg_reload_conf()")
        eventually(
            lambda: server.query("SELECT 1 FROM pg_hba_file_rules WHERE 'locks' = ANY(user_name)")
        )
        with leaselock.Client(server.url) as client:
            client.setup()
        yield server


def renew_password(server: Postgres, service: Service) -> None:
    """Make the service's next password the only one, and end all connections of the user."""
    service.number += 1
    server.query(f"ALTER ROLE locks PASSWORD '{service.password}'")
    server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'locks'")


@pytest.mark.heavy
def test_postgres_engine_asks_for_each_connection(checking: Postgres, service: Service) -> None:
    engine = create_engine(f"postgresql+psycopg://locks@127.0.0.1:{checking.port}/postgres")

    @event.listens_for(engine, "do_connect")
    def provide(_dialect: Any, _record: Any, _args: Any, parameters: dict[str, Any]) -> None:
        service.issued += 1
        parameters["password"] = service.password

    with leaselock.Client(engine) as client, client.lock("before") as lease:
        renew_password(checking, service)
        with client.lock("after", timeout=10):
            lease.ensure()
    assert service.issued >= 2
    engine.dispose()


@pytest.mark.heavy
def test_postgres_reads_its_password_file_for_each_connection(
    checking: Postgres, service: Service, tmp_path: Path
) -> None:
    file = tmp_path / "pgpass"

    def write() -> None:
        file.write_text(f"*:*:*:locks:{service.password}\n")
        file.chmod(0o600)

    write()
    url = f"postgresql://locks@127.0.0.1:{checking.port}/postgres?passfile={file}"
    with leaselock.Client(url) as client, client.lock("before") as lease:
        renew_password(checking, service)
        write()
        with client.lock("after", timeout=10):
            lease.ensure()


@pytest.mark.heavy
def test_the_command_of_the_page_escapes_the_token(
    checking: Postgres, service: Service, tmp_path: Path
) -> None:
    # Such tokens have colons; a backslash is the other sign with a meaning in a password file.
    service.prefix = r"db.test:5432/?Action=connect&X=a\b"
    renew_password(checking, service)
    (block,) = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    named = "$HOST/app?sslmode=verify-full&"
    assert named in block
    block = block.replace(named, f"127.0.0.1:{checking.port}/postgres?")
    programs = {"aws": f"printf '%s\\n' '{service.password}'", "report": "echo reported"}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-euc", f"umask 077\n{block}"],
        cwd=tmp_path,
        env={"PATH": path, "HOST": "db.test", "PGPASS": str(tmp_path / "pgpass")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "reported\n"), ran.stderr


def test_mysql_engine_asks_for_each_connection(mariadb: MariaDB, service: Service) -> None:
    mariadb.do(
        f"CREATE USER rotated@'%' IDENTIFIED BY '{service.password}'",
        "GRANT ALL ON locks.* TO rotated@'%'",
    )
    engine = create_engine(f"mysql+pymysql://rotated@127.0.0.1:{mariadb.port}/locks")

    @event.listens_for(engine, "do_connect")
    def provide(_dialect: Any, _record: Any, _args: Any, parameters: dict[str, Any]) -> None:
        service.issued += 1
        parameters["password"] = service.password

    with leaselock.Client(engine) as client, client.lock("before") as lease:
        service.number += 1
        mariadb.do(
            f"ALTER USER rotated@'%' IDENTIFIED BY '{service.password}'",
            "KILL CONNECTION USER rotated",
        )
        with client.lock("after", timeout=10):
            lease.ensure()
    assert service.issued >= 2
    engine.dispose()
    mariadb.do("DROP USER rotated@'%'")
