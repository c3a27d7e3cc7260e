"""What tests do with a PostgreSQL or a MariaDB: a user with few rights, an empty database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.servers.postgres import USER, Postgres

if TYPE_CHECKING:
    from testkit.servers.mariadb import MariaDB

TABLES = ("lock", "hold", "waiter", "tombstone", "wake", "row", "session")
# What the page of the store asks for, and nothing else.
WORKER = "worker"
RIGHTS = "SELECT, INSERT, UPDATE, DELETE"


def minimal(server: Postgres | MariaDB) -> str:
    """The URL for a user who may only do what every program that locks must."""
    if isinstance(server, Postgres):
        server.query(f"CREATE ROLE {WORKER} LOGIN")
        server.query(f"GRANT SELECT, UPDATE ON leaselock_fact TO {WORKER}")
        server.query(f"GRANT {RIGHTS} ON {', '.join(f'leaselock_{t}' for t in TABLES)} TO {WORKER}")
        return server.url.replace(f"{USER}@", f"{WORKER}@")
    server.do(
        f"CREATE USER {WORKER}@'%' IDENTIFIED BY 'secret'",
        f"GRANT SELECT, UPDATE ON locks.leaselock_fact TO {WORKER}@'%'",
        *(f"GRANT {RIGHTS} ON locks.leaselock_{table} TO {WORKER}@'%'" for table in TABLES),
    )
    return server.url.replace("leaselock:", f"{WORKER}:")


def emptied(server: Postgres | MariaDB) -> str:
    """The URL of a database in which nothing is locked."""
    if isinstance(server, Postgres):
        server.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'leaselock'"
        )
        server.query("TRUNCATE " + ", ".join(f"leaselock_{table}" for table in TABLES))
        server.query("UPDATE leaselock_fact SET value = '0' WHERE key = 'floor'")
        return server.url
    numbers = server.query(
        "SELECT id FROM information_schema.processlist WHERE user IN ('leaselock', 'worker')"
    )
    kills = [f"KILL {number}" for (number,) in numbers]
    floor = "UPDATE locks.leaselock_fact SET value = '0' WHERE fact = 'floor'"
    server.do(*kills, *(f"DELETE FROM locks.leaselock_{table}" for table in TABLES), floor)
    return server.url
