"""leaselock on a private Redis, beside peers in several languages and bare round trips.

All use one server on this machine without persistence. The commands that it counts include those
inside scripts.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testkit.servers.redis import Redis

from benchmarks.contestants import ON_LOOP, ON_REDIS, TITLES, contestant, present
from benchmarks.contestants.foreign import Foreign
from benchmarks.figures import ratio, spread
from benchmarks.sampling import (
    SampleSetup,
    fastest_peer_goal,
    pairs,
    ratio_goal,
    sample_contestants,
    table_of,
)
from benchmarks.tables import Goal, Table
from benchmarks.workloads.contention import ContentionSetup, contend, waits
from benchmarks.workloads.contention import table_of as table_of_contention

if TYPE_CHECKING:
    from benchmarks.contestants import Contestant
    from benchmarks.scale import Scale
    from benchmarks.workloads.contention import Samples

BARE, BARE_HANDOFF, BARE_LOOP = "bare-redis", "bare-handoff", "bare-aio"
FLOORS = {BARE, BARE_HANDOFF, BARE_LOOP}
MAX_PAIR = 1.1
HOLDS = (0.0, 0.001, 0.01)
MAX_P99, MAX_WAIT, MIN_JAIN = 1.5, 2.0, 0.99
MIN_ADVANTAGE, MAX_GROWTH = 1.3, 1.1
# As multiples of a bare hand-off: without hold time, a process that polls takes the lock again and
# again, about as often as bare hand-offs are possible; so no goal compares the two.
MAX_HANDOFF, MAX_HANDOFF_CPU, MAX_BEHIND = 1.5, 1.6, 1.3
ROUND_TRIPS = 50
# With more processes these take minutes, because of polling or of their start.
MAX_SLOW_PROCESSES = 8
SLOW_PEERS = (
    *("pottery", "redlock-py", "portalocker-redis", "tooz-redis"),
    *("node-redlock", "redisson", "redisson-fair"),
)
SUMMARY = [
    *("processes", "hold, ms", "x best Python peer", "transfers x best", "x Redisson"),
    *("x redsync", "p99 / ideal", "longest / ideal", "Jain", "hand-off / round trip"),
    *("hand-off x bare", "client CPU x bare", "commands"),
]


def run(scale: Scale) -> list[Table]:
    """Measure everything on one server."""
    with Redis() as server:
        prepare = partial(announce, server.url)
        setup = SampleSetup(prepare, counter=server.command_count)
        pairs = [threads(scale, setup), loops(scale, setup)]
        return [*pairs, *contention(scale, server)]


def announce(url: str, folder: Path) -> None:
    """Write the URL of the server for the contestants."""
    Path(folder, "url").write_text(url)


def threads(scale: Scale, setup: SampleSetup) -> Table:
    """Measure a free lock with one thread."""
    samples = sample_contestants(ON_REDIS, scale, setup)
    goals = ratio_goal(samples, "a pair x two bare round trips", "redis", BARE, MAX_PAIR)
    goals += fastest_peer_goal(samples, "redis", set(ON_REDIS) - {"redis", *FLOORS})
    title = "Redis, pair: acquire and release a free lock, one thread"
    return table_of(title, samples, BARE)._replace(goals=goals)


def loops(scale: Scale, setup: SampleSetup) -> Table:
    """Measure a free lock with one task."""
    samples = sample_contestants([*ON_LOOP, BARE], scale, setup)
    goals = fastest_peer_goal(samples, "aio", set(ON_LOOP) - {"aio", *FLOORS})
    title = "Redis, asyncio pair: acquire and release a free lock, one task"
    return table_of(title, samples, BARE)._replace(goals=goals)


# --- contention -----------------------------------------------------------------------------------


def contention(scale: Scale, server: Redis) -> list[Table]:
    """Measure contention with each number of processes and each hold time, with a summary."""
    prepare = partial(announce, server.url)
    waiting = [name for name in present(ON_REDIS) if contestant(name).waits]
    tables, cells = [], []
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        with closing(contestant(BARE)(Path(folder))) as bare:
            for size in scale.contender_counts:
                names = [
                    name for name in waiting if size <= MAX_SLOW_PROCESSES or name not in SLOW_PEERS
                ]
                trip = partial(round_trip, bare)
                setup = ContentionSetup(names, "redis-py", prepare, server.command_count, trip)
                for hold, rounds in contend(setup, scale, size, HOLDS).items():
                    table = table_of_contention(rounds, size, hold, "redis-py")
                    tables.append(table._replace(title=f"Redis, {table.title}"))
                    cells.append(cell(tables[-1], rounds))
    return [*tables, overview(cells)]


def round_trip(bare: Contestant) -> float:
    """Return the time of one bare round trip of a script, in seconds."""
    return pairs(bare, ROUND_TRIPS).wall / 2


def cell(table: Table, rounds: Samples) -> dict[str, float]:
    """Return the figures for the summary and the goals."""
    ours = table.data["contestants"]["redis"]
    python = [
        n for n in rounds if n not in ("redis", *FLOORS) and not issubclass(contestant(n), Foreign)
    ]
    found = {key: ours[key] for key in ("processes", "jain", "commands", "handoff")}
    trip = spread([one.handoff / one.round_trip for one in rounds["redis"]]).median
    found |= {"hold": table.data["hold"], "handoff_over_trip": trip}
    for figure in ("handoff", "cpu"):
        values = ([getattr(one, figure) for one in rounds[n]] for n in ("redis", BARE_HANDOFF))
        found[f"{figure}_over_bare"] = ratio(*values).median
    transfers = {
        name: spread([one.transfers for one in mine]).median for name, mine in rounds.items()
    }
    found["transfers"] = transfers["redis"] / max(transfers[name] for name in python)
    found |= {"p99": ours["p99"] / ours["ideal"], "longest": ours["longest"] / ours["ideal"]}
    found["python"] = min(_throughput(rounds, name) for name in python)
    for name in ("redisson", "redsync", BARE_HANDOFF):
        found |= {name: _throughput(rounds, name)} if name in rounds else {}
    return found


def _throughput(rounds: Samples, other: str) -> float:
    mine, theirs = ([one.rate for one in rounds[name]] for name in ("redis", other))
    return ratio(mine, theirs).median


def overview(cells: list[dict[str, float]]) -> Table:
    """Return the summary of all measurements, with the goals."""
    rows = [_row(one) for one in cells]
    title = "Redis, contention, summary: leaselock beside its peers and the ideal"
    slow = ", ".join(TITLES[name] for name in SLOW_PEERS)
    notes = [
        "x best Python peer, Redisson, redsync: throughput of leaselock divided by theirs",
        "transfers: between processes, divided by those of the best Python peer",
        "round trip: a bare one of the same script, immediately before each measurement",
        "bare: the same scripts and messages over plain sockets",
        f"{slow}: with at most {MAX_SLOW_PROCESSES} processes only",
    ]
    growth = {
        "Redis: commands of a hand-off, by processes": _curve(cells, "commands"),
        "Redis: time of a hand-off, by processes": _curve(cells, "handoff"),
    }
    return Table(title, SUMMARY, rows, {"cells": cells, "growth": growth}, _goals(cells), notes)


def _row(one: dict[str, float]) -> list[str]:
    others = [f"{one[name]:.2f}" if name in one else "" for name in ("redisson", "redsync")]
    ideal = [f"{one['p99']:.2f}", f"{one['longest']:.2f}"] if one["hold"] else ["", ""]
    rest = [f"{one['jain']:.3f}", f"{one['handoff_over_trip']:.2f}"]
    rest += [f"{one['handoff_over_bare']:.2f}", f"{one['cpu_over_bare']:.2f}"]
    rest.append(f"{one['commands']:.1f}")
    first = [f"{one['processes']:.0f}", f"{one['hold'] * 1e3:g}", f"{one['python']:.2f}"]
    first.append(f"{one['transfers']:.2f}")
    return [*first, *others, *ideal, *rest]


def _curve(cells: list[dict[str, float]], figure: str) -> dict[str, list[float]]:
    """Return the curve for holds that are long enough for all others to wait."""
    some = [one for one in cells if one["hold"] == HOLDS[-1]]
    return {"x": [one["processes"] for one in some], "y": [one[figure] for one in some]}


def _goals(cells: list[dict[str, float]]) -> list[Goal]:
    sizes = [one["processes"] for one in cells]
    size = 8.0 if 8.0 in sizes else max(sizes)
    at = {one["hold"]: one for one in cells if one["processes"] == size}
    free, short = at[0.0], at[0.001]
    advantage, behind = 1 / max(free["transfers"], 1e-9), 1 / free[BARE_HANDOFF]
    goals = [
        Goal("no hold: best Python peer's hand-offs/s / ours", advantage, 1 / MIN_ADVANTAGE),
        Goal("no hold: bare hand-offs/s / ours", behind, MAX_BEHIND),
    ]
    goals += waits(short | {"ideal": 1.0}, MAX_P99, MAX_WAIT)
    goals.append(Goal("1 ms: Jain's unfairness", 1 - short["jain"], 1 - MIN_JAIN))
    goals += [
        Goal("1 ms: hand-off x a bare one", short["handoff_over_bare"], MAX_HANDOFF),
        Goal(
            "no hold: client CPU x that of a bare hand-off", free["cpu_over_bare"], MAX_HANDOFF_CPU
        ),
    ]
    counts = [one["commands"] for one in cells if one["hold"] == HOLDS[-1]]
    goals.append(
        Goal("10 ms: commands, most processes / fewest", counts[-1] / counts[0], MAX_GROWTH)
    )
    return [one._replace(text=f"{size:.0f} processes, {one.text}") for one in goals]
