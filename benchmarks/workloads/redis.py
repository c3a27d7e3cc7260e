"""holdfast on a private Redis, next to redis-py's lock, python-redis-lock, and bare round trips.

Law: all of them talk to one server on this machine, which keeps nothing on disk; the commands that
it counts are those inside scripts, too.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.redis import Redis

import holdfast
from benchmarks.contestants import ON_REDIS, contestant
from benchmarks.tables import Goal, Table
from benchmarks.turns import ratios, table_of, take_turns
from benchmarks.workloads.contention import HOLDS, Bill, contention

if TYPE_CHECKING:
    from benchmarks.scale import Scale

RAW = "raw-redis"
PAIR_MOST = 1.15
P99_MOST, LONGEST_MOST, JAIN_LEAST = 1.5, 3.0, 0.99
CROWDS = (8, 64)
SAME = 1.1
TURNS_OF_EACH = 20


def run(scale: Scale) -> list[Table]:
    """Measure everything on one server."""
    with Redis() as server:
        prepare = partial(announce, server.url)
        waiting = [name for name in ON_REDIS if contestant(name).waits]
        bill = Bill(waiting, "redis-py", P99_MOST, LONGEST_MOST, JAIN_LEAST, prepare)
        crowds = [contention(scale, hold, bill) for hold in HOLDS]
        return [pair(scale, prepare), *map(on_redis, crowds), hand_overs(scale, server)]


def announce(url: str, folder: Path) -> None:
    """Tell the contestants where the server is."""
    Path(folder, "url").write_text(url)


def on_redis(table: Table) -> Table:
    """A table whose title says where it was measured."""
    return table._replace(title=f"Redis, {table.title}")


def pair(scale: Scale, prepare: partial[None]) -> Table:
    """A free lock, taken and given back by one thread."""
    turns = take_turns(list(ON_REDIS), scale, prepare=prepare)
    over = ratios(turns, RAW)["redis"].median
    goal = Goal("a pair x two bare round trips", over, PAIR_MOST)
    table = table_of("Redis, pair: acquire and release a free lock, one thread", turns, RAW)
    return table._replace(goals=[goal])


def hand_overs(scale: Scale, server: Redis) -> Table:
    """The server's work for each hand-over, by the number of those who wait."""
    turns = 2 if scale.crowd_rounds == 1 else TURNS_OF_EACH
    counts = [commands_of(server, crowd, turns) for crowd in CROWDS]
    rows = [[str(crowd), f"{count:.2f}"] for crowd, count in zip(CROWDS, counts, strict=True)]
    goal = Goal(f"for {CROWDS[1]} over for {CROWDS[0]}", counts[1] / counts[0], SAME)
    title = "Redis, commands of the server for each hand-over"
    data = {"commands": dict(zip(map(str, CROWDS), counts, strict=True))}
    return Table(title, ["threads", "commands"], rows, data, [goal])


def commands_of(server: Redis, crowd: int, turns: int) -> float:
    """Commands for each hold while *crowd* threads of one client want one lock."""
    with holdfast.Client(server.url) as client:
        lock = client.lock(f"crowd of {crowd}")
        start = threading.Barrier(crowd + 1)
        work = partial(contend, lock, turns, start)
        threads = [threading.Thread(target=work) for _ in range(crowd)]
        for thread in threads:
            thread.start()
        with lock:
            start.wait()
            while len(lock.waiters()) < crowd:
                pass
            before = server.command_count()
        for thread in threads:
            thread.join()
        return (server.command_count() - before) / (crowd * turns)


def contend(lock: holdfast.Lock, turns: int, start: threading.Barrier) -> None:
    """Take it so many times."""
    start.wait()
    for _ in range(turns):
        with lock:
            pass
