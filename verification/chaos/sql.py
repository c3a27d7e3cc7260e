"""Databases: terminated sessions, killed servers, network faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.chaos.target import Target
from testkit.proxy import Proxy
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres
from verification.chaos.network_faults import behind_proxies, network_faults

import leaselock

if TYPE_CHECKING:
    import random
    from contextlib import ExitStack
    from pathlib import Path

    from testkit.chaos.target import Fault

    Database = Postgres | MariaDB


def database_target(
    name: str, stack: ExitStack, server: Database, terminate: Fault, protocol: str
) -> Target:
    """A hold in a session ends with its connection, and its holder learns of it a moment later.
    Only tokens protect in between, so such a target gets partitions only. A lease survives the
    end of its connection.
    """
    with leaselock.Client(server.url) as client:
        client.setup()
    proxies = [stack.enter_context(Proxy(server.port))]
    url = server.url.replace(f":{server.port}/", f":{proxies[0].port}/")

    def restart(rng: random.Random) -> None:
        server.kill()
        server.start()

    faults = {**network_faults(proxies), "terminate": terminate, "restart": restart}
    if protocol != "lease":
        faults = {"partition": faults["partition"]}
    return behind_proxies(Target(name, f"{url}?protocol={protocol}", faults, idle=10.0), proxies)


def postgres(name: str, stack: ExitStack, folder: Path, protocol: str = "lease") -> Target:
    """One PostgreSQL server."""
    server = stack.enter_context(Postgres())

    def terminate(rng: random.Random) -> None:
        rows = server.query(
            "SELECT pid FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'leaselock'"
        )
        if rows:
            server.query(f"SELECT pg_terminate_backend({rng.choice(rows)[0]})")

    return database_target(name, stack, server, terminate, protocol)


def mariadb(name: str, stack: ExitStack, folder: Path, protocol: str = "lease") -> Target:
    """One MariaDB server."""
    server = stack.enter_context(MariaDB())

    def terminate(rng: random.Random) -> None:
        rows = server.query(
            "SELECT id FROM information_schema.processlist WHERE user = 'leaselock'"
        )
        if rows:
            server.do(f"KILL {rng.choice(rows)[0]}")

    return database_target(name, stack, server, terminate, protocol)
