"""Alembic on PostgreSQL: two processes that migrate at the same time, and autogenerate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, create_engine

import leaselock
from leaselock.contrib.alembic import NAME, include_name, migration_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.postgres import Postgres
    from tests.contrib.conftest import Programs

INI = """
    [alembic]
    script_location = %(here)s
"""
ENV = """
    import os

    from alembic import context
    from leaselock.contrib.alembic import include_name, migration_lock
    from sqlalchemy import create_engine

    engine = create_engine(os.environ["DATABASE"])
    with migration_lock(engine), engine.connect() as connection:
        context.configure(
            connection=connection, include_name=include_name, transaction_per_migration=True
        )
        with context.begin_transaction():
            context.run_migrations()
"""
# The first migration waits until the other process waits for the lock.
TABLE = """
    import os, time
    import leaselock, sqlalchemy
    from alembic import op

    revision, down_revision = "001", None

    def upgrade():
        op.create_table("invoice", sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True))
        with leaselock.Client(os.environ["LOCKS"], protocol="lease") as client:
            while not client.lock("alembic").waiters():
                time.sleep(0.02)
        with open("migrated", "a") as file:
            file.write(f"001 {os.getpid()}\\n")
"""
INDEX = """
    import os
    from alembic import op

    revision, down_revision = "002", "001"

    def upgrade():
        with op.get_context().autocommit_block():
            op.create_index("by_id", "invoice", ["id"], postgresql_concurrently=True)
        with open("migrated", "a") as file:
            file.write(f"002 {os.getpid()}\\n")
"""


def database(server: Postgres, name: str) -> str:
    """The URL of a new database."""
    server.query(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    server.query(f"CREATE DATABASE {name}")
    return server.url.rpartition("/")[0] + f"/{name}"


@pytest.fixture
def engine(postgres: Postgres) -> Iterator[Engine]:
    made = create_engine(postgres.url.replace("://", "+psycopg://"))
    yield made
    made.dispose()


@pytest.mark.heavy
def test_two_processes_migrate_and_one_does_it(
    programs: Programs, postgres_server: Postgres
) -> None:
    url = database(postgres_server, "migrated")
    programs.write("alembic.ini", INI)
    programs.write("env.py", ENV)
    programs.write("versions/001.py", TABLE)
    programs.write("versions/002.py", INDEX)
    env = {"DATABASE": url.replace("://", "+psycopg://"), "LOCKS": url}
    both = [programs.start("alembic", "upgrade", "head", env=env) for _ in range(2)]
    for program in both:
        program.ended()
    (first, by_first), (second, by_second) = (line.split() for line in programs.lines("migrated"))
    assert (first, second) == ("001", "002")
    assert by_first == by_second
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT * FROM alembic_version").fetchall() == [("002",)]
        index = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'by_id'::regclass"
        assert connection.execute(index).fetchall() == [(True,)]


def test_the_lock_is_held_and_bounded(engine: Engine, postgres: Postgres) -> None:
    with migration_lock(engine) as lease, leaselock.Client(postgres.url) as other:
        assert other.lock(NAME).holder() is not None
        with pytest.raises(leaselock.AcquireTimeout), migration_lock(engine, timeout=0.0):
            pass
        lease.ensure()
    with migration_lock(engine, timeout=0.0) as later:
        assert later.token > lease.token


def test_autogenerate_leaves_the_tables_of_leaselock_alone(engine: Engine) -> None:
    with engine.connect() as connection:
        for names, options in ((True, {}), (False, {"include_name": include_name})):
            context = MigrationContext.configure(connection, opts=options)
            dropped = [str(change) for change in compare_metadata(context, MetaData())]
            assert any("leaselock_lock" in change for change in dropped) is names
