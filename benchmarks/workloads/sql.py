"""leaselock in a private PostgreSQL and a private MariaDB, next to bare statements and to peers.

Law: all talk to the same server, on connections of their own. Nothing is forced to the disk, so
what is measured is the work, not the disk.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.process import eventually

import leaselock
from benchmarks.contestants import ON_SQL
from benchmarks.figures import percentile, spread
from benchmarks.tables import Goal, Table
from benchmarks.turns import Ground, ahead, goal, ratios, table_of, take_turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scale import Scale

PAIR_MOST = {"row": 1.5, "advisory": 1.2}
WAKE_MOST = 0.010
WAITERS = 8
PROTOCOLS = ("lease", "row", "advisory")


def run(scale: Scale) -> list[Table]:
    """Measure on both servers."""
    return [table for kind in (Postgres, MariaDB) for table in on_server(scale, kind)]


def on_server(scale: Scale, kind: type[Postgres | MariaDB]) -> list[Table]:
    """Measure on one of them."""
    with kind() as server:
        with leaselock.Client(server.url) as client:
            client.setup()
        return [pair(scale, server), wake_up(scale, server)]


def announce(url: str, folder: Path) -> None:
    """Tell the contestants where the server is."""
    Path(folder, "url").write_text(url)


def pair(scale: Scale, server: Postgres | MariaDB) -> Table:
    """A free lock, taken and given back by one thread."""
    turns = take_turns(
        ON_SQL, scale, Ground(partial(announce, server.url), counter=counter(server))
    )
    goals = []
    for protocol, most in PAIR_MOST.items():
        text = f"a pair by {protocol} x its bare statements"
        goals += goal(turns, text, f"sql-{protocol}", f"raw-sql-{protocol}", most)
    goals += ahead(turns, "sql-lease", ("sqlalchemy-dlock", "tooz-sql"))
    lease = ratios(turns, "raw-sql-lease")["sql-lease"].median
    note = f"a pair by lease takes {lease:.2f} x its two bare statements"
    title = f"{type(server).__name__}, pair: acquire and release a free lock, one thread"
    return table_of(title, turns, "sqlalchemy-dlock")._replace(goals=goals, notes=[note])


def counter(server: Postgres | MariaDB) -> Callable[[], int] | None:
    """What counts the statements of the server; PostgreSQL knows them too late."""
    if isinstance(server, Postgres):
        return None
    return lambda: int(server.query("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1])


class Wakes:
    """Clients that wait for one lock, one after the other; each says when it has it."""

    def __init__(self, url: str) -> None:
        self.clients = [leaselock.Client(url) for _ in range(WAITERS + 1)]
        self.released = 0.0
        self.seconds: list[float] = []

    def round(self) -> None:
        """All wait, then each is woken by the release of the one before."""
        giving, *taking = (client.lock("handed over") for client in self.clients)
        lease = giving.acquire()
        assert lease is not None
        threads = [threading.Thread(target=self._wait, args=(lock,)) for lock in taking]
        for thread in threads:
            thread.start()
        eventually(lambda: len(giving.waiters()) == WAITERS)
        time.sleep(0.02)  # until the last of them has fallen asleep
        self.released = time.perf_counter()
        lease.release()
        for thread in threads:
            thread.join()

    def _wait(self, lock: leaselock.Lock) -> None:
        with lock:
            self.seconds.append(time.perf_counter() - self.released)
            time.sleep(random.uniform(0.0, 0.002))
            self.released = time.perf_counter()

    def close(self) -> None:
        """End all clients."""
        for client in self.clients:
            client.close()


def wake_up(scale: Scale, server: Postgres | MariaDB) -> Table:
    """A lock that goes from hand to hand, each waiter a client of its own."""
    rows, data = [], {}
    for protocol in PROTOCOLS:
        wakes = Wakes(f"{server.url}?protocol={protocol}")
        for _ in range(max(2, scale.rounds * 4 // 5)):
            wakes.round()
        wakes.close()
        middle, most = spread(wakes.seconds).median, percentile(sorted(wakes.seconds), 99)
        rows.append([f"**leaselock**, {protocol}", f"{middle * 1e3:.2f}", f"{most * 1e3:.2f}"])
        data[protocol] = {"median": middle, "p99": most, "count": len(wakes.seconds)}
    goals = []
    if isinstance(server, Postgres):
        p99 = data["lease"]["p99"]
        goals = [Goal("lease: ms from the release to the next grant, p99", p99 * 1e3, 10.0)]
    title = f"{type(server).__name__}, wake-up: from a release to the next grant, {WAITERS} waiters"
    return Table(title, ["", "median, ms", "p99, ms"], rows, data, goals)
