"""asyncio on a private Redis: many tasks with a lock each, and many tasks that wait.

Law: the server's own limit is measured with the same scripts, their commands packed beforehand,
200 of them on the way at a time; nothing is parsed.
"""

from __future__ import annotations

import random
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.process import HOST, eventually
from tests.servers.redis import Redis

from benchmarks.contestants.raw_redis import commands
from benchmarks.crew import Member
from benchmarks.figures import ratio, spread
from benchmarks.tables import Goal, Table
from holdfast.backends.redis.scripts import ACQUIRE, RELEASE

if TYPE_CHECKING:
    from benchmarks.scale import Scale

KINDS = ("holdfast", "redis-py")
TITLES = {
    "holdfast": "**holdfast**, AsyncClient",
    "redis-py": "redis-py's asyncio Lock",
    "limit": "the server's limit, same scripts",
}
TASKS = 1000
ON_THE_WAY = 200
OF_THE_LIMIT, OVER_REDIS_PY = 0.5, 10.0
SLEEPERS = 10_000
MOST_BYTES = 60e6


class Sleep(NamedTuple):
    """What a process of waiting tasks costs."""

    connections: int
    memory: int
    bare: int
    busy: float
    commands: float


def run(scale: Scale) -> list[Table]:
    """Measure both."""
    with Redis() as server:
        quick = scale.crowd_rounds == 1
        return [
            throughput(server, scale, 100 if quick else TASKS),
            waiting(server, scale, 500 if quick else SLEEPERS),
        ]


# --- a lock for each ------------------------------------------------------------------------------


def throughput(server: Redis, scale: Scale, tasks: int) -> Table:
    """Pairs a second, in random order, round by round."""
    rates: dict[str, list[float]] = {name: [] for name in TITLES}
    for _ in range(scale.crowd_rounds):
        for name in random.sample(list(TITLES), len(TITLES)):
            server.ask("FLUSHALL")
            if name == "limit":
                rates[name].append(limit(server, tasks, scale.crowd_turn))
            else:
                rates[name].append(rate_of(name, server, tasks, scale.crowd_turn))
    return table_of(rates, tasks)


def rate_of(name: str, server: Redis, tasks: int, seconds: float) -> float:
    """What a process of so many tasks reaches."""
    arguments = [name, server.url, str(tasks), str(seconds)]
    with Member("benchmarks.tasks", arguments) as member:
        return float(member.hear()["rate"])


def limit(server: Redis, tasks: int, seconds: float) -> float:
    """Pairs a second of the scripts alone, over one plain socket."""
    for script in (ACQUIRE, RELEASE):
        server.ask("SCRIPT", "LOAD", script.text)
    pairs = [b"".join(commands(f"task {number}")) for number in range(tasks)]
    count = ON_THE_WAY // 2
    batches = [
        (b"".join(pairs[i : i + count]), len(pairs[i : i + count])) for i in range(0, tasks, count)
    ]
    done, began = 0, time.perf_counter()
    with socket.create_connection((HOST, server.port)) as line:
        while time.perf_counter() < began + seconds:
            for batch, size in batches:
                line.sendall(batch)
                skip(line, size)
                done += size
    return done / (time.perf_counter() - began)


def skip(line: socket.socket, pairs: int) -> None:
    """Read the replies of so many pairs: five lines each."""
    lines = 0
    while lines < 5 * pairs:
        lines += line.recv(1 << 16).count(b"\r\n")
    assert lines == 5 * pairs, "an unexpected reply"


def table_of(rates: dict[str, list[float]], tasks: int) -> Table:
    """The rates, and what share of the limit they are."""
    rows, data = [], {}
    for name, mine in rates.items():
        share = ratio(mine, rates["limit"])
        rows.append([TITLES[name], share.show(digits=3), spread(mine).show(digits=0)])
        data[name] = {"share": share._asdict(), "rate": spread(mine)._asdict()}
    ours = ratio(rates["limit"], rates["holdfast"]).median
    against = ratio(rates["redis-py"], rates["holdfast"]).median
    goals = [
        Goal("the server's limit / holdfast", ours, 1 / OF_THE_LIMIT),
        Goal("redis-py / holdfast", against, 1 / OVER_REDIS_PY),
    ]
    title = f"Redis, {tasks} tasks, a lock each"
    return Table(title, ["contestant", "x limit", "pairs/s"], rows, {"rates": data}, goals)


# --- waiting --------------------------------------------------------------------------------------


def waiting(server: Redis, scale: Scale, tasks: int) -> Table:
    """Tasks that wait: all for one lock, or each for its own."""
    found = {kind: sleep(kind, server, scale, tasks) for kind in ("sleepers", "scattered")}
    names = {"sleepers": "one lock", "scattered": "a lock for each"}
    rows = [
        [
            names[kind],
            f"{cost.connections}",
            f"{cost.memory / 1e6:.0f}",
            f"{cost.bare / 1e6:.0f}",
            f"{cost.busy * 100:.0f}",
            f"{cost.commands:,.0f}",
        ]
        for kind, cost in found.items()
    ]
    goals = [
        Goal("connections", found["sleepers"].connections, 1),
        Goal("memory, MB", found["sleepers"].memory / 1e6, MOST_BYTES / 1e6),
    ]
    head = ["waiting for", "connections", "MB", "MB before", "CPU, %", "server commands/s"]
    data = {kind: cost._asdict() for kind, cost in found.items()}
    return Table(f"Redis, {tasks} waiting tasks in a process", head, rows, data, goals)


def sleep(kind: str, server: Redis, scale: Scale, tasks: int) -> Sleep:
    """Let them wait for a while."""
    server.ask("FLUSHALL")
    locks = tasks if kind == "scattered" else 1
    with server.wire() as wire:
        for number in range(locks):
            wire.ask("HSET", f"held {number}", "somebody:1", 1)
            wire.ask("PEXPIRE", f"held {number}", 600_000)
    before = clients(server)
    seconds = max(scale.wait, 0.5)
    with Member("benchmarks.tasks", [kind, server.url, str(tasks), str(seconds)]) as member:
        member.hear()
        eventually(lambda: queued(server, kind, locks) >= tasks, 120.0)
        counted = server.command_count()
        member.tell("")
        cost = member.hear()
        counted = server.command_count() - counted
        connections = clients(server) - before
    return Sleep(connections, cost["memory"], cost["bare"], cost["busy"], counted / seconds)


def clients(server: Redis) -> int:
    """How many connections the server has."""
    return int(server.info("clients")["connected_clients"])


def queued(server: Redis, kind: str, locks: int) -> int:
    """How many stand in queues."""
    if kind == "sleepers":
        return int(server.ask("ZCARD", "holdfast:queue:{held 0}"))
    # Besides the locks themselves, each has a queue.
    return int(server.ask("DBSIZE")) - locks
