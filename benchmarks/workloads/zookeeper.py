"""leaselock on a private ZooKeeper, beside kazoo's lock and the bare requests of the recipe.

All use the same server: a single one, or a follower of an ensemble of three. The servers do not
call fsync, so the disk is not measured.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.servers.process import HOST, eventually
from testkit.servers.zookeeper import Ensemble

import leaselock
from benchmarks.contestants import ON_ZOOKEEPER
from benchmarks.figures import ratio, spread
from benchmarks.sampling import SampleSetup, ratio_goal, ratios, sample_contestants, table_of
from benchmarks.tables import Goal, Table

if TYPE_CHECKING:
    from benchmarks.scale import Scale

KAZOO, BARE = "kazoo", "bare-zookeeper"
ONE = "one server"
# Of a pair, x kazoo's lock; through a follower its bare requests alone take 0.7 x kazoo's lock, so
# the goal is there x those.
MAX_PAIR, MAX_OVER_BARE, MAX_HANDOFF = 0.65, 1.1, 1.2
HANDOFFS = 40


def run(scale: Scale) -> list[Table]:
    """Measure on one server, and on an ensemble of three."""
    return [table for count in (1, 3) for table in on_servers(scale, count)]


def on_servers(scale: Scale, count: int) -> list[Table]:
    """Measure on an ensemble of *count* servers."""
    with Ensemble(count) as ensemble:
        asked = (ensemble.followers() or ensemble.servers)[0]
        hosts = f"{HOST}:{asked.port}"
        where = ONE if count == 1 else f"a follower of {count}"
        setup = SampleSetup(partial(announce, hosts), counter=partial(packets, ensemble))
        return [pair(scale, setup, where), handoff(scale, hosts, where)]


def packets(ensemble: Ensemble) -> int:
    """Return the number of requests that the servers received from clients."""
    return ensemble.total("zk_packets_received")


def announce(hosts: str, folder: Path) -> None:
    """Write the addresses of the servers for the contestants."""
    Path(folder, "hosts").write_text(hosts)


def pair(scale: Scale, setup: SampleSetup, where: str) -> Table:
    """Measure a free lock with one thread."""
    samples = sample_contestants(ON_ZOOKEEPER, scale, setup)
    if where == ONE:
        goals = ratio_goal(samples, "a pair x kazoo's", "zookeeper", KAZOO, MAX_PAIR)
    else:
        text = "a pair x its bare requests"
        goals = ratio_goal(samples, text, "zookeeper", BARE, MAX_OVER_BARE)
    bare = ratios(samples, KAZOO)[BARE].median
    title = f"ZooKeeper, {where}, pair: acquire and release a free lock, one thread"
    note = f"the bare requests of the recipe, by kazoo's client, take {bare:.2f} x kazoo's lock"
    return table_of(title, samples, KAZOO)._replace(goals=goals, notes=[note])


class Handoffs:
    """Two sessions of leaselock and two of kazoo, for hand-offs from one to the other."""

    def __init__(self, hosts: str) -> None:
        self.clients = [leaselock.Client(f"zookeeper://{hosts}/bench") for _ in range(2)]
        self.kazoo: list[Any] = [KazooClient(hosts) for _ in range(2)]
        for client in self.kazoo:
            client.start()

    def close(self) -> None:
        """Close all sessions."""
        for client in self.kazoo:
            client.stop()
        for client in (*self.clients, *self.kazoo):
            client.close()

    def ours(self) -> float:
        """Return the time from the call of release to the grant of the other session."""
        holding, waiting_for = (client.lock("handed off") for client in self.clients)
        lease = holding.acquire()
        assert lease is not None
        granted: list[float] = []

        def wait() -> None:
            with waiting_for:
                granted.append(time.perf_counter())

        def waiting() -> bool:
            return len(holding.waiters()) == 1

        return self._between(wait, waiting, lease.release, granted)

    def bare(self) -> float:
        """Return the time from the call of delete to the notification of the other session."""
        holding, waiting_for = self.kazoo
        holding.create("/bench/noted", ephemeral=True, makepath=True)
        woken, noted = threading.Event(), list[float]()
        waiting_for.get("/bench/noted", lambda event: woken.set())

        def wait() -> None:
            woken.wait()
            noted.append(time.perf_counter())

        return self._between(wait, lambda: True, partial(holding.delete, "/bench/noted"), noted)

    def _between(self, wait: Any, waiting: Any, release: Any, noted: list[float]) -> float:
        thread = threading.Thread(target=wait)
        thread.start()
        eventually(waiting)
        time.sleep(0.003)  # until it is blocked
        began = time.perf_counter()
        release()
        thread.join()
        return noted[0] - began


def handoff(scale: Scale, hosts: str, where: str) -> Table:
    """Measure the hand-off of a held lock to a waiting client."""
    measured: dict[str, list[float]] = {"ours": [], "bare": []}
    over = Handoffs(hosts)
    for _ in range(scale.rounds):
        for name in random.sample(sorted(measured), 2):
            some = [getattr(over, name)() for _ in range(max(3, HANDOFFS // scale.rounds))]
            measured[name].append(spread(some).median)
    over.close()
    ours, bare = spread(measured["ours"]), spread(measured["bare"])
    against = ratio(measured["ours"], measured["bare"])
    rows = [
        ["**leaselock**, ZooKeeper", against.show(digits=3), ours.show(1e6, 0)],
        ["one write and one notification, by kazoo", "1", bare.show(1e6, 0)],
    ]
    goal = Goal("a hand-off x one write and one notification", against.median, MAX_HANDOFF)
    data = {"ratio": against._asdict(), "seconds": ours._asdict(), "bare": bare._asdict()}
    title = f"ZooKeeper, {where}, hand-off: from the release to the next grant"
    return Table(title, ["", "x bare", "µs"], rows, data, [goal])
