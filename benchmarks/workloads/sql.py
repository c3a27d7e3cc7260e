"""leaselock in a private PostgreSQL and a private MariaDB, beside bare statements and peers.

All contestants use the same server, on their own connections. The server does not call fsync, so
the disk is not measured.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres
from testkit.servers.process import eventually

import leaselock
from benchmarks.contestants import ON_SQL
from benchmarks.figures import percentile, spread
from benchmarks.sampling import (
    SampleSetup,
    fastest_peer_goal,
    ratio_goal,
    ratios,
    sample_contestants,
    table_of,
)
from benchmarks.tables import Goal, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scale import Scale

MAX_PAIR = {"row": 1.5, "advisory": 1.2}
WAITERS = 8
PROTOCOLS = ("lease", "row", "advisory")


def run(scale: Scale) -> list[Table]:
    """Measure on both servers."""
    return [table for kind in (Postgres, MariaDB) for table in on_server(scale, kind)]


def on_server(scale: Scale, kind: type[Postgres | MariaDB]) -> list[Table]:
    """Measure on one server."""
    with kind() as server:
        with leaselock.Client(server.url) as client:
            client.setup()
        return [pair(scale, server), wake_up(scale, server)]


def announce(url: str, folder: Path) -> None:
    """Write the URL of the server for the contestants."""
    Path(folder, "url").write_text(url)


def pair(scale: Scale, server: Postgres | MariaDB) -> Table:
    """Measure a free lock with one thread."""
    samples = sample_contestants(
        ON_SQL, scale, SampleSetup(partial(announce, server.url), counter=counter(server))
    )
    goals = []
    for protocol, most in MAX_PAIR.items():
        text = f"a pair with {protocol} x its bare statements"
        goals += ratio_goal(samples, text, f"sql-{protocol}", f"bare-sql-{protocol}", most)
    goals += fastest_peer_goal(samples, "sql-lease", ("sqlalchemy-dlock", "tooz-sql"))
    lease = ratios(samples, "bare-sql-lease")["sql-lease"].median
    note = f"a pair with lease takes {lease:.2f} x its two bare statements"
    title = f"{type(server).__name__}, pair: acquire and release a free lock, one thread"
    return table_of(title, samples, "sqlalchemy-dlock")._replace(goals=goals, notes=[note])


def counter(server: Postgres | MariaDB) -> Callable[[], int] | None:
    """Return a counter of the server's statements; PostgreSQL reports them too late."""
    if isinstance(server, Postgres):
        return None
    return lambda: int(server.query("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1])


class WakeUps:
    """Clients that wait for one lock and record the time from the release to their grant."""

    def __init__(self, url: str) -> None:
        self.clients = [leaselock.Client(url) for _ in range(WAITERS + 1)]
        self.released = 0.0
        self.seconds: list[float] = []

    def round(self) -> None:
        """Let all wait; each is then woken by the release of the one before."""
        holding, *waiting = (client.lock("handed off") for client in self.clients)
        lease = holding.acquire()
        assert lease is not None
        threads = [threading.Thread(target=self._wait, args=(lock,)) for lock in waiting]
        for thread in threads:
            thread.start()
        eventually(lambda: len(holding.waiters()) == WAITERS)
        time.sleep(0.02)  # until the last of them is blocked
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
        """Close all clients."""
        for client in self.clients:
            client.close()


def wake_up(scale: Scale, server: Postgres | MariaDB) -> Table:
    """Measure hand-offs between clients."""
    rows, data = [], {}
    for protocol in PROTOCOLS:
        wake_ups = WakeUps(f"{server.url}?protocol={protocol}")
        for _ in range(max(2, scale.rounds * 4 // 5)):
            wake_ups.round()
        wake_ups.close()
        middle, most = spread(wake_ups.seconds).median, percentile(sorted(wake_ups.seconds), 99)
        rows.append([f"**leaselock**, {protocol}", f"{middle * 1e3:.2f}", f"{most * 1e3:.2f}"])
        data[protocol] = {"median": middle, "p99": most, "count": len(wake_ups.seconds)}
    goals = []
    if isinstance(server, Postgres):
        p99 = data["lease"]["p99"]
        goals = [Goal("lease: ms from the release to the next grant, p99", p99 * 1e3, 10.0)]
    title = f"{type(server).__name__}, wake-up: from a release to the next grant, {WAITERS} waiters"
    return Table(title, ["", "median, ms", "p99, ms"], rows, data, goals)
