"""leaselock on a private ZooKeeper, next to kazoo's lock and the bare requests of the recipe.

Law: all of them talk to the same server: the only one, or a follower of an ensemble of three.
Nothing is forced to the disk, so what is measured is the work, not the disk.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from tests.servers.process import HOST, eventually
from tests.servers.zookeeper import Ensemble

import leaselock
from benchmarks.contestants import ON_ZOOKEEPER
from benchmarks.figures import ratio, spread
from benchmarks.tables import Goal, Table
from benchmarks.turns import Ground, goal, ratios, table_of, take_turns

if TYPE_CHECKING:
    from benchmarks.scale import Scale

KAZOO = "kazoo"
PAIR_MOST, HAND_OVER_MOST = 0.65, 1.2
HAND_OVERS = 40


def run(scale: Scale) -> list[Table]:
    """Measure on one server, and on three."""
    return [table for count in (1, 3) for table in on_servers(scale, count)]


def on_servers(scale: Scale, count: int) -> list[Table]:
    """Measure on an ensemble of so many."""
    with Ensemble(count) as ensemble:
        asked = (ensemble.followers() or ensemble.servers)[0]
        hosts = f"{HOST}:{asked.port}"
        where = "one server" if count == 1 else f"a follower of {count}"
        ground = Ground(partial(announce, hosts), counter=partial(packets, ensemble))
        return [pair(scale, ground, where), hand_over(scale, hosts, where)]


def packets(ensemble: Ensemble) -> int:
    """How many requests the servers had from clients."""
    return ensemble.total("zk_packets_received")


def announce(hosts: str, folder: Path) -> None:
    """Tell the contestants where the servers are."""
    Path(folder, "hosts").write_text(hosts)


def pair(scale: Scale, ground: Ground, where: str) -> Table:
    """A free lock, taken and given back by one thread."""
    turns = take_turns(ON_ZOOKEEPER, scale, ground)
    goals = goal(turns, "a pair x kazoo's", "zookeeper", KAZOO, PAIR_MOST)
    floor = ratios(turns, KAZOO)["raw-zookeeper"].median
    title = f"ZooKeeper, {where}, pair: acquire and release a free lock, one thread"
    note = f"the bare requests of the recipe, by kazoo's client, take {floor:.2f} x kazoo's lock"
    return table_of(title, turns, KAZOO)._replace(goals=goals, notes=[note])


class HandOvers:
    """Two sessions, and one notification from the one to the other."""

    def __init__(self, hosts: str) -> None:
        self.clients = [leaselock.Client(f"zookeeper://{hosts}/bench") for _ in range(2)]
        self.kazoo: list[Any] = [KazooClient(hosts) for _ in range(2)]
        for client in self.kazoo:
            client.start()

    def close(self) -> None:
        """End all sessions."""
        for client in self.kazoo:
            client.stop()
        for client in (*self.clients, *self.kazoo):
            client.close()

    def ours(self) -> float:
        """From the call of release to the other's grant."""
        giving, taking = (client.lock("handed over") for client in self.clients)
        lease = giving.acquire()
        assert lease is not None
        granted: list[float] = []

        def wait() -> None:
            with taking:
                granted.append(time.perf_counter())

        def waiting() -> bool:
            return len(giving.waiters()) == 1

        return self._between(wait, waiting, lease.release, granted)

    def raw(self) -> float:
        """From the call of delete to the other's notification: one write, one watch."""
        giving, taking = self.kazoo
        giving.create("/bench/noted", ephemeral=True, makepath=True)
        woken, noted = threading.Event(), list[float]()
        taking.get("/bench/noted", lambda event: woken.set())

        def wait() -> None:
            woken.wait()
            noted.append(time.perf_counter())

        return self._between(wait, lambda: True, partial(giving.delete, "/bench/noted"), noted)

    def _between(self, wait: Any, waiting: Any, give: Any, noted: list[float]) -> float:
        thread = threading.Thread(target=wait)
        thread.start()
        eventually(waiting)
        time.sleep(0.003)  # until it has fallen asleep
        began = time.perf_counter()
        give()
        thread.join()
        return noted[0] - began


def hand_over(scale: Scale, hosts: str, where: str) -> Table:
    """A held lock goes over to the one who waits, a client of its own."""
    measured: dict[str, list[float]] = {"ours": [], "raw": []}
    over = HandOvers(hosts)
    for _ in range(scale.rounds):
        for name in random.sample(sorted(measured), 2):
            some = [getattr(over, name)() for _ in range(max(3, HAND_OVERS // scale.rounds))]
            measured[name].append(spread(some).median)
    over.close()
    ours, raw = spread(measured["ours"]), spread(measured["raw"])
    against = ratio(measured["ours"], measured["raw"])
    rows = [
        ["**leaselock**, ZooKeeper", against.show(digits=3), ours.show(1e6, 0)],
        ["one write and one notification, by kazoo", "1", raw.show(1e6, 0)],
    ]
    goal = Goal("a hand-over x one write and one notification", against.median, HAND_OVER_MOST)
    data = {"ratio": against._asdict(), "seconds": ours._asdict(), "raw": raw._asdict()}
    title = f"ZooKeeper, {where}, hand-over: from the release to the next grant"
    return Table(title, ["", "x raw", "µs"], rows, data, [goal])
