"""One lock on every kind of store, in one run: a cache, a coordination service, two databases.

Law: each store is a private server on this machine that forces nothing to the disk, and each lock
is the default one of its store. So the table compares the work that each way of locking is.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.zookeeper import Ensemble

import leaselock
from benchmarks.contestants.ours import Ours
from benchmarks.turns import rounds_of, table_of

if TYPE_CHECKING:
    from benchmarks.scale import Scale
    from benchmarks.tables import Table

REFERENCE = "Redis"


class Opened(Ours):
    """The lock of a client that is open."""

    def __init__(self, client: leaselock.Client) -> None:
        self.client = client
        self.choose("bench")


def urls(stack: ExitStack) -> dict[str, str]:
    """All servers, started."""
    found = {
        "Redis": stack.enter_context(Redis()).url,
        "ZooKeeper, one server": f"zookeeper://{stack.enter_context(Ensemble(1)).hosts}/bench",
        "PostgreSQL, lease": stack.enter_context(Postgres()).url,
        "MariaDB, lease": stack.enter_context(MariaDB()).url,
    }
    for name in ("PostgreSQL", "MariaDB"):
        with leaselock.Client(found[f"{name}, lease"]) as client:
            client.setup()
        for protocol in ("row", "advisory"):
            found[f"{name}, {protocol}"] = f"{found[f'{name}, lease']}?protocol={protocol}"
    return found


def run(scale: Scale) -> list[Table]:
    """A free lock, taken and given back by one thread."""
    with ExitStack() as stack:
        clients = {name: leaselock.Client(url) for name, url in urls(stack).items()}
        locks = {name: Opened(stack.enter_context(client)) for name, client in clients.items()}
        turns = rounds_of(locks, scale)
    title = "stores, pair: acquire and release a free lock, one thread"
    return [table_of(title, turns, REFERENCE)]
