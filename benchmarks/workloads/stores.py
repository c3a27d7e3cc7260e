"""One lock on every kind of store in one run: a cache, a coordination service, two databases.

Each store is a private server on this machine that does not call fsync, so the table compares the
work of each locking method without the disk.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres
from testkit.servers.redis import Redis
from testkit.servers.zookeeper import Ensemble

import leaselock
from benchmarks.contestants.ours import Ours
from benchmarks.sampling import sample_in_rounds, table_of

if TYPE_CHECKING:
    from benchmarks.scale import Scale
    from benchmarks.tables import Table

REFERENCE = "Redis"


class OpenLock(Ours):
    """The lock of an open client."""

    def __init__(self, client: leaselock.Client) -> None:
        self.client = client
        self.use_lock("bench")


def urls(stack: ExitStack) -> dict[str, str]:
    """Start all servers; return their URLs."""
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
    """Measure a free lock with one thread."""
    with ExitStack() as stack:
        clients = {name: leaselock.Client(url) for name, url in urls(stack).items()}
        locks = {name: OpenLock(stack.enter_context(client)) for name, client in clients.items()}
        samples = sample_in_rounds(locks, scale)
    title = "stores, pair: acquire and release a free lock, one thread"
    return [table_of(title, samples, REFERENCE)]
