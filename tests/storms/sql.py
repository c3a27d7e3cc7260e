"""Databases whose sessions are ended, whose server dies, and that are out of reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.storms.network import network, proxied

import leaselock
from leaselock.testing.chaos.stage import Stage
from leaselock.testing.proxy import Proxy

if TYPE_CHECKING:
    import random
    from contextlib import ExitStack
    from pathlib import Path

    from leaselock.testing.chaos.stage import Fault

    Database = Postgres | MariaDB


def staged(name: str, stack: ExitStack, server: Database, terminate: Fault, protocol: str) -> Stage:
    """A hold that lives in a connection is over when that ends, and its holder hears of it a
    moment later: against that there are tokens. A lease does not care for connections.
    """
    with leaselock.Client(server.url) as client:
        client.setup()
    proxies = [stack.enter_context(Proxy(server.port))]
    url = server.url.replace(f":{server.port}/", f":{proxies[0].port}/")

    def restart(lots: random.Random) -> None:
        server.kill()
        server.start()

    faults = {**network(proxies), "terminate": terminate, "restart": restart}
    if protocol != "lease":
        faults = {"partition": faults["partition"]}
    return proxied(Stage(name, f"{url}?protocol={protocol}", faults, idle=10.0), proxies)


def postgres(name: str, stack: ExitStack, folder: Path, protocol: str = "lease") -> Stage:
    """One server of PostgreSQL."""
    server = stack.enter_context(Postgres())

    def terminate(lots: random.Random) -> None:
        rows = server.query(
            "SELECT pid FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'leaselock'"
        )
        if rows:
            server.query(f"SELECT pg_terminate_backend({lots.choice(rows)[0]})")

    return staged(name, stack, server, terminate, protocol)


def mariadb(name: str, stack: ExitStack, folder: Path, protocol: str = "lease") -> Stage:
    """One server of MariaDB."""
    server = stack.enter_context(MariaDB())

    def terminate(lots: random.Random) -> None:
        rows = server.query(
            "SELECT id FROM information_schema.processlist WHERE user = 'leaselock'"
        )
        if rows:
            server.do(f"KILL {lots.choice(rows)[0]}")

    return staged(name, stack, server, terminate, protocol)
