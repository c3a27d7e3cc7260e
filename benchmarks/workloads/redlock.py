"""Redlock on several private masters: all alive, one dead, one slow.

The dead master is down before the clients connect. The slow one replies a twentieth of a second
later, through a proxy.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from testkit.proxy import Proxy
from testkit.servers.process import HOST, free_port
from testkit.servers.redis import Redis

from benchmarks.contestants import ON_MASTERS, TITLES, contestant, present
from benchmarks.figures import ratio, spread
from benchmarks.sampling import pairs
from benchmarks.tables import Goal, Table
from benchmarks.workloads.redis import announce

if TYPE_CHECKING:
    from benchmarks.scale import Scale

ALIVE, DEAD, SLOW = "all alive", "one dead", "one slow"
STATES = (ALIVE, DEAD, SLOW)
DELAY = 0.025
# A sample of a few pairs says little: requests to several masters wait for several threads.
ROUNDS, LONGER = 7, 5
# Contestants that take longer for one pair are measured only once.
SLOW_PAIR = 0.3
MAX_DEAD = 1.2


class Variant(NamedTuple):
    """A contestant, and the state of its masters."""

    name: str
    state: str


def run(scale: Scale) -> list[Table]:
    """Measure with each number of masters."""
    tables, walls = [], []
    for count in scale.masters:
        found, faults = measure(scale, count)
        tables.append(table_of(count, found, faults))
        walls.append(spread(found[Variant("redlock", ALIVE)]).median)
    curve = {"x": list(map(float, scale.masters)), "y": walls}
    tables[-1].data["growth"] = {"Redlock: time of a pair, by masters": curve}
    return tables


def measure(scale: Scale, count: int) -> tuple[dict[Variant, list[float]], list[str]]:
    """Return the seconds of a pair, round by round, and the contestants that failed."""
    variants = [Variant(name, state) for name in present(ON_MASTERS) for state in STATES]
    walls: dict[Variant, list[float]] = {}
    faults = []
    with ExitStack() as stack:
        servers = [stack.enter_context(Redis()) for _ in range(count)]
        urls = masters(stack, servers)
        locks = {}
        for variant in variants:
            try:
                locks[variant] = Lock(stack, variant, ",".join(urls[variant.state]), scale)
            except Exception as error:
                faults.append(f"{TITLES[variant.name]}, {variant.state}: {type(error).__name__}")
                for server in servers:
                    server.ask("FLUSHALL")
        for _ in range(min(scale.rounds, ROUNDS)):
            for variant in random.sample(list(locks), len(locks)):
                walls.setdefault(variant, []).append(locks[variant].sample())
    return walls, faults


def masters(stack: ExitStack, servers: list[Redis]) -> dict[str, list[str]]:
    """Return the URLs for each state."""
    proxy = stack.enter_context(Proxy(servers[-1].port))
    proxy.delay = DELAY
    most = [server.url for server in servers[:-1]]
    return {
        ALIVE: [*most, servers[-1].url],
        DEAD: [*most, f"redis://{HOST}:{free_port()}/0"],
        SLOW: [*most, f"redis://{HOST}:{proxy.port}/0"],
    }


class Lock:
    """An open contestant; a first pair determines how many pairs make a sample."""

    def __init__(self, stack: ExitStack, variant: Variant, urls: str, scale: Scale) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        announce(urls, folder)
        self.lock = stack.enter_context(closing(contestant(variant.name)(folder)))
        pairs(self.lock, 1)
        self.first = pairs(self.lock, 1).wall
        self.count = max(1, round(LONGER * scale.sample_seconds / self.first))

    def sample(self) -> float:
        """Return the seconds of a pair."""
        return self.first if self.first > SLOW_PAIR else pairs(self.lock, self.count).wall


def table_of(count: int, walls: dict[Variant, list[float]], faults: list[str]) -> Table:
    """Return the table: each state relative to the same contestant with all masters alive."""
    rows, data = [], {}
    base = walls[Variant("redlock", ALIVE)]
    for variant, mine in walls.items():
        healthy = walls.get(Variant(variant.name, ALIVE), mine)
        over, against, wall = ratio(mine, healthy), ratio(mine, base), spread(mine)
        cells = [over.show(digits=2), against.show(digits=2), wall.show(1e6, 0)]
        rows.append([f"{TITLES[variant.name]}, {variant.state}", *cells])
        figures = {"over_alive": over, "ratio": against, "seconds": wall}
        data[" ".join(variant)] = {key: value._asdict() for key, value in figures.items()}
    rows.sort()
    dead = data[f"redlock {DEAD}"]["over_alive"]["median"]
    goals = [Goal(f"one of {count} dead / all alive", dead, MAX_DEAD)]
    title = f"Redlock of {count}, pair: acquire and release a free lock, one thread"
    head = ["contestant", f"x its own with {ALIVE}", "x leaselock's", "µs"]
    notes = [f"failed: {fault}" for fault in faults]
    return Table(title, head, rows, {"pairs": data}, goals, notes)
