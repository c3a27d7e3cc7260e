"""leaselock on a private Redis, next to its peers of all languages and to bare round trips.

Law: all of them talk to one server on this machine, which keeps nothing on disk; the commands that
it counts are those inside scripts, too.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.redis import Redis

from benchmarks.contestants import ON_LOOP, ON_REDIS, TITLES, contestant, present
from benchmarks.contestants.foreign import Foreign
from benchmarks.figures import ratio, spread
from benchmarks.tables import Goal, Table
from benchmarks.turns import Ground, ahead, goal, pairs, table_of, take_turns
from benchmarks.workloads.contention import Bill, contend, waits
from benchmarks.workloads.contention import table_of as table_of_contention

if TYPE_CHECKING:
    from benchmarks.contestants import Contestant
    from benchmarks.scale import Scale
    from benchmarks.workloads.contention import Rounds

RAW = "raw-redis"
PAIR_MOST = 1.1
HOLDS = (0.0, 0.001, 0.01)
P99_MOST, LONGEST_MOST, JAIN_LEAST = 1.3, 2.0, 0.99
AHEAD, HAND_OVER_MOST, SAME = 1.3, 1.5, 1.1
TRIPS = 50
# In larger crowds these take minutes, by asking again and again or by being started.
FEW = 8
SLOW = (
    *("pottery", "redlock-py", "portalocker-redis", "tooz-redis"),
    *("node-redlock", "redisson", "redisson-fair"),
)
SUMMARY = [
    *("processes", "hold, ms", "x best Python peer", "passed on x best", "x Redisson"),
    *("x redsync", "p99 / ideal", "longest / ideal", "Jain", "hand-over / round trip", "commands"),
]


def run(scale: Scale) -> list[Table]:
    """Measure everything on one server."""
    with Redis() as server:
        prepare = partial(announce, server.url)
        ground = Ground(prepare, counter=server.command_count)
        pairs = [threads(scale, ground), loops(scale, ground)]
        return [*pairs, *contention(scale, server)]


def announce(url: str, folder: Path) -> None:
    """Tell the contestants where the server is."""
    Path(folder, "url").write_text(url)


def threads(scale: Scale, ground: Ground) -> Table:
    """A free lock, taken and given back by one thread."""
    turns = take_turns(ON_REDIS, scale, ground)
    goals = goal(turns, "a pair x two bare round trips", "redis", RAW, PAIR_MOST)
    goals += ahead(turns, "redis", set(ON_REDIS) - {"redis", RAW})
    title = "Redis, pair: acquire and release a free lock, one thread"
    return table_of(title, turns, RAW)._replace(goals=goals)


def loops(scale: Scale, ground: Ground) -> Table:
    """The same, by one task."""
    turns = take_turns([*ON_LOOP, RAW], scale, ground)
    goals = ahead(turns, "aio", set(ON_LOOP) - {"aio"})
    title = "Redis, asyncio pair: acquire and release a free lock, one task"
    return table_of(title, turns, RAW)._replace(goals=goals)


# --- contention -----------------------------------------------------------------------------------


def contention(scale: Scale, server: Redis) -> list[Table]:
    """Crowds of each size, for each hold, and what is to be seen of them at one glance."""
    prepare = partial(announce, server.url)
    waiting = [name for name in present(ON_REDIS) if contestant(name).waits]
    tables, cells = [], []
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        with closing(contestant(RAW)(Path(folder))) as raw:
            for size in scale.crowds:
                names = [name for name in waiting if size <= FEW or name not in SLOW]
                trip = partial(round_trip, raw)
                bill = Bill(names, "redis-py", prepare, server.command_count, trip)
                for hold, rounds in contend(bill, scale, size, HOLDS).items():
                    table = table_of_contention(rounds, size, hold, "redis-py")
                    tables.append(table._replace(title=f"Redis, {table.title}"))
                    cells.append(cell(tables[-1], rounds))
    return [*tables, overview(cells)]


def round_trip(raw: Contestant) -> float:
    """One bare round trip of a script, in seconds."""
    return pairs(raw, TRIPS).wall / 2


def cell(table: Table, rounds: Rounds) -> dict[str, float]:
    """What the goals are about."""
    ours = table.data["contestants"]["redis"]
    python = [n for n in rounds if n != "redis" and not issubclass(contestant(n), Foreign)]
    found = {key: ours[key] for key in ("processes", "jain", "commands", "hand_over")}
    trip = spread([one.hand_over / one.trip for one in rounds["redis"]]).median
    found |= {"hold": table.data["hold"], "trip": trip}
    passed = {name: spread([one.passed for one in mine]).median for name, mine in rounds.items()}
    found["passed"] = passed["redis"] / max(passed[name] for name in python)
    found |= {"p99": ours["p99"] / ours["ideal"], "longest": ours["longest"] / ours["ideal"]}
    found["python"] = min(_throughput(rounds, name) for name in python)
    for name in ("redisson", "redsync"):
        found |= {name: _throughput(rounds, name)} if name in rounds else {}
    return found


def _throughput(rounds: Rounds, other: str) -> float:
    mine, theirs = ([one.rate for one in rounds[name]] for name in ("redis", other))
    return ratio(mine, theirs).median


def overview(cells: list[dict[str, float]]) -> Table:
    """All crowds in one table, with the goals."""
    rows = [_row(one) for one in cells]
    title = "Redis, contention at one glance: leaselock next to its peers and the ideal"
    notes = [
        "x best Python peer, Redisson, redsync: throughput of leaselock over theirs",
        "passed on: how often the lock goes from one process to another, over the best Python peer",
        "round trip: one bare one of the same script, shortly before each turn",
        f"{', '.join(TITLES[name] for name in SLOW)}: in crowds of at most {FEW} only",
    ]
    growth = {
        "Redis: commands of a hand-over, by processes": _curve(cells, "commands"),
        "Redis: time of a hand-over, by processes": _curve(cells, "hand_over"),
    }
    return Table(title, SUMMARY, rows, {"cells": cells, "growth": growth}, _goals(cells), notes)


def _row(one: dict[str, float]) -> list[str]:
    others = [f"{one[name]:.2f}" if name in one else "" for name in ("redisson", "redsync")]
    ideal = [f"{one['p99']:.2f}", f"{one['longest']:.2f}"] if one["hold"] else ["", ""]
    rest = [f"{one['jain']:.3f}", f"{one['trip']:.2f}", f"{one['commands']:.1f}"]
    first = [f"{one['processes']:.0f}", f"{one['hold'] * 1e3:g}", f"{one['python']:.2f}"]
    first.append(f"{one['passed']:.2f}")
    return [*first, *others, *ideal, *rest]


def _curve(cells: list[dict[str, float]], figure: str) -> dict[str, list[float]]:
    """With holds long enough that all others wait."""
    some = [one for one in cells if one["hold"] == HOLDS[-1]]
    return {"x": [one["processes"] for one in some], "y": [one[figure] for one in some]}


def _goals(cells: list[dict[str, float]]) -> list[Goal]:
    sizes = [one["processes"] for one in cells]
    crowd = 8.0 if 8.0 in sizes else max(sizes)
    at = {one["hold"]: one for one in cells if one["processes"] == crowd}
    free, short = at[0.0], at[0.001]
    goals = [Goal("no hold: best Python peer's throughput / ours", 1 / free["python"], 1 / AHEAD)]
    goals += [
        Goal(f"no hold: {name}'s throughput / ours", 1 / free[name], 1.0)
        for name in ("redisson", "redsync")
        if name in free
    ]
    goals += waits(short | {"ideal": 1.0}, P99_MOST, LONGEST_MOST)
    goals.append(Goal("1 ms: Jain's unfairness", 1 - short["jain"], 1 - JAIN_LEAST))
    goals.append(Goal("1 ms: hand-over / bare round trip", short["trip"], HAND_OVER_MOST))
    counts = [one["commands"] for one in cells if one["hold"] == HOLDS[-1]]
    goals.append(Goal("10 ms: commands, largest crowd / smallest", counts[-1] / counts[0], SAME))
    return [one._replace(text=f"{crowd:.0f} processes, {one.text}") for one in goals]
