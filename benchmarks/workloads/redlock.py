"""Redlock of several private masters: all alive, one dead, one slow.

Law: the dead one is gone before the clients come, as if it had been down all day; the slow one
answers each time a twentieth of a second later, through a proxy.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.process import HOST, free_port
from tests.servers.redis import Redis

from benchmarks.contestants import ON_MASTERS, TITLES, contestant, present
from benchmarks.figures import ratio, spread
from benchmarks.tables import Goal, Table
from benchmarks.turns import pairs
from benchmarks.workloads.redis import announce
from leaselock.testing.proxy import Proxy

if TYPE_CHECKING:
    from benchmarks.scale import Scale

ALIVE, DEAD, SLOW = "all alive", "one dead", "one slow"
STATES = (ALIVE, DEAD, SLOW)
LATER = 0.025
ROUNDS = 5
# Whoever takes longer for one pair has made its point.
TOO_LONG = 0.3
DEAD_MOST = 1.2


class Seat(NamedTuple):
    """A contestant, and the state that its masters are in."""

    name: str
    state: str


def run(scale: Scale) -> list[Table]:
    """Measure with as many masters as the scale says, one number after the other."""
    tables, walls = [], []
    for count in scale.masters:
        found, faults = measure(scale, count)
        tables.append(table_of(count, found, faults))
        walls.append(spread(found[Seat("redlock", ALIVE)]).median)
    curve = {"x": list(map(float, scale.masters)), "y": walls}
    tables[-1].data["growth"] = {"Redlock: time of a pair, by masters": curve}
    return tables


def measure(scale: Scale, count: int) -> tuple[dict[Seat, list[float]], list[str]]:
    """The seconds of a pair, round by round, and who could not do it at all."""
    seats = [Seat(name, state) for name in present(ON_MASTERS) for state in STATES]
    walls: dict[Seat, list[float]] = {}
    faults = []
    with ExitStack() as stack:
        servers = [stack.enter_context(Redis()) for _ in range(count)]
        urls = masters(stack, servers)
        locks = {}
        for seat in seats:
            try:
                locks[seat] = Lock(stack, seat, ",".join(urls[seat.state]), scale)
            except Exception as error:
                faults.append(f"{TITLES[seat.name]}, {seat.state}: {type(error).__name__}")
                for server in servers:
                    server.ask("FLUSHALL")
        for _ in range(min(scale.rounds, ROUNDS)):
            for seat in random.sample(list(locks), len(locks)):
                walls.setdefault(seat, []).append(locks[seat].turn())
    return walls, faults


def masters(stack: ExitStack, servers: list[Redis]) -> dict[str, list[str]]:
    """The URLs of each state."""
    proxy = stack.enter_context(Proxy(servers[-1].port))
    proxy.delay = LATER
    most = [server.url for server in servers[:-1]]
    return {
        ALIVE: [*most, servers[-1].url],
        DEAD: [*most, f"redis://{HOST}:{free_port()}/0"],
        SLOW: [*most, f"redis://{HOST}:{proxy.port}/0"],
    }


class Lock:
    """One contestant, open in a folder of its own; a first pair says how many make a turn."""

    def __init__(self, stack: ExitStack, seat: Seat, urls: str, scale: Scale) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        announce(urls, folder)
        self.lock = stack.enter_context(closing(contestant(seat.name)(folder)))
        pairs(self.lock, 1)
        self.first = pairs(self.lock, 1).wall
        self.count = max(1, round(scale.turn / self.first))

    def turn(self) -> float:
        """Seconds of a pair."""
        return self.first if self.first > TOO_LONG else pairs(self.lock, self.count).wall


def table_of(count: int, walls: dict[Seat, list[float]], faults: list[str]) -> Table:
    """Each state over the same contestant's time with all alive."""
    rows, data = [], {}
    base = walls[Seat("redlock", ALIVE)]
    for seat, mine in walls.items():
        healthy = walls.get(Seat(seat.name, ALIVE), mine)
        over, against, wall = ratio(mine, healthy), ratio(mine, base), spread(mine)
        cells = [over.show(digits=2), against.show(digits=2), wall.show(1e6, 0)]
        rows.append([f"{TITLES[seat.name]}, {seat.state}", *cells])
        figures = {"over_alive": over, "ratio": against, "seconds": wall}
        data[" ".join(seat)] = {key: value._asdict() for key, value in figures.items()}
    rows.sort()
    dead = data[f"redlock {DEAD}"]["over_alive"]["median"]
    goals = [Goal(f"one of {count} dead / all alive", dead, DEAD_MOST)]
    title = f"Redlock of {count}, pair: acquire and release a free lock, one thread"
    head = ["contestant", f"x its own with {ALIVE}", "x leaselock's", "µs"]
    notes = [f"it cannot: {fault}" for fault in faults]
    return Table(title, head, rows, {"pairs": data}, goals, notes)
