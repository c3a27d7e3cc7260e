"""One lock on every kind of store, in one run: a cache, a coordination service, two databases.

Law: each store is a private server on this machine that forces nothing to the disk, and each lock
is the default one of its store. So the table compares the work that each way of locking is.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar

from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.zookeeper import Ensemble

import holdfast
from benchmarks.figures import ratio, spread
from benchmarks.tables import Table
from benchmarks.turns import WARM_UP, pairs

if TYPE_CHECKING:
    from benchmarks.scale import Scale
    from benchmarks.turns import Turn

REFERENCE = "Redis"


class Ours:
    """The lock of one client, as a contestant."""

    version: ClassVar[str] = holdfast.__version__
    reentrant: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __init__(self, client: holdfast.Client) -> None:
        self.lock = client.lock("bench")
        self.leases: list[holdfast.Lease] = []

    def acquire(self) -> None:
        """Take it."""
        lease = self.lock.acquire()
        assert lease is not None
        self.leases.append(lease)

    def release(self) -> None:
        """Give it back."""
        self.leases.pop().release()

    def close(self) -> None:
        """The client is another's to close."""


def urls(stack: ExitStack) -> dict[str, str]:
    """All servers, started."""
    found = {
        "Redis": stack.enter_context(Redis()).url,
        "ZooKeeper, one server": f"zookeeper://{stack.enter_context(Ensemble(1)).hosts}/bench",
        "PostgreSQL, lease": stack.enter_context(Postgres()).url,
        "MariaDB, lease": stack.enter_context(MariaDB()).url,
    }
    for name in ("PostgreSQL", "MariaDB"):
        with holdfast.Client(found[f"{name}, lease"]) as client:
            client.setup()
        for protocol in ("row", "advisory"):
            found[f"{name}, {protocol}"] = f"{found[f'{name}, lease']}?protocol={protocol}"
    return found


def run(scale: Scale) -> list[Table]:
    """A free lock, taken and given back by one thread."""
    with ExitStack() as stack:
        clients = {name: holdfast.Client(url) for name, url in urls(stack).items()}
        locks = {name: Ours(stack.enter_context(client)) for name, client in clients.items()}
        counts = {name: _count(lock, scale.turn) for name, lock in locks.items()}
        turns: dict[str, list[Turn]] = {name: [] for name in locks}
        for _ in range(scale.rounds):
            for name in random.sample(list(locks), len(locks)):
                turns[name].append(pairs(locks[name], counts[name]))
    return [_table(turns)]


def _count(lock: Ours, seconds: float) -> int:
    pairs(lock, WARM_UP)
    return max(1, round(seconds / pairs(lock, WARM_UP).wall))


def _table(turns: dict[str, list[Turn]]) -> Table:
    rows, data = [], {}
    base = [turn.wall for turn in turns[REFERENCE]]
    for name, mine in turns.items():
        walls = [turn.wall for turn in mine]
        wall, against = spread(walls), ratio(walls, base)
        rows.append([f"**holdfast**, {name}", against.show(digits=2), wall.show(1e6, 0)])
        data[name] = {"ratio": against._asdict(), "seconds": wall._asdict()}
    title = "stores, pair: acquire and release a free lock, one thread"
    return Table(title, ["", f"x {REFERENCE}", "µs"], rows, data)
