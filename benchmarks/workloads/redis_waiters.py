"""The cost of waiting: one to ten thousand tasks of one process, on a private Redis.

The lock is held by a client of another process, whose renewals are the only other load. At the end
the time from its release to the first grant is measured.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from testkit.servers.process import eventually
from testkit.servers.redis import Redis

import leaselock
from benchmarks.figures import percentile
from benchmarks.tables import Goal, Table
from benchmarks.workers.process import python_worker
from benchmarks.workers.waiters import LOCK, SEPARATE_LOCKS, SHARED_LOCK, name_of

if TYPE_CHECKING:
    from benchmarks.scale import Scale

MAX_BYTES = 3000.0
IDLE_COMMANDS = 1.0
TIMEOUT = 120.0
HEAD = [
    *("waiters", "connections", "KB each", "MB", "CPU, %", "server commands/s"),
    *("server CPU, %", "wake-up, ms", "next grants, µs"),
]


class WaitFigures(NamedTuple):
    """The cost of a process with waiting tasks."""

    tasks: int
    connections: int
    memory: int
    bare: int
    busy: float
    commands: float
    server: float
    wake: float
    passing: float

    @property
    def each(self) -> float:
        """Bytes per task."""
        return max(0, self.memory - self.bare) / self.tasks


def run(scale: Scale) -> list[Table]:
    """Measure tasks that wait for one lock, in all sizes, and tasks with a lock each."""
    with Redis() as server:
        shared = [wait(server, scale, tasks) for tasks in scale.waiters]
        separate = wait(server, scale, scale.waiters[-1], SEPARATE_LOCKS)
    rows = [_row(f"{one.tasks:,} for one lock", one) for one in shared]
    rows.append(_row(f"{separate.tasks:,}, a lock for each", separate))
    most = shared[-1]
    goals = [
        Goal("connections", most.connections, 1),
        Goal("bytes of a waiter", most.each, MAX_BYTES),
        Goal("server commands/s, without the INFO that counts them", most.commands, IDLE_COMMANDS),
    ]
    goals = [goal._replace(text=f"{most.tasks:,} for one lock: {goal.text}") for goal in goals]
    data = {"shared": [one._asdict() for one in shared], "separate": separate._asdict()}
    title = "Redis, tasks of one process that wait for a lock of another"
    return [Table(title, HEAD, rows, data | {"growth": _growth(shared)}, goals)]


def _row(title: str, one: WaitFigures) -> list[str]:
    woken = [f"{one.wake * 1e3:.2f}", f"{one.passing * 1e6:,.0f}"] if one.wake else ["", ""]
    idle = [f"{one.busy * 100:.1f}", f"{one.commands:.1f}", f"{one.server * 100:.1f}"]
    size = [f"{one.connections}", f"{one.each / 1e3:.1f}", f"{one.memory / 1e6:.0f}"]
    return [title, *size, *idle, *woken]


def _growth(shared: list[WaitFigures]) -> dict[str, dict[str, list[float]]]:
    x = [float(one.tasks) for one in shared]
    curves = {
        "memory of the process": [float(one.memory) for one in shared],
        "wake-up of the first": [one.wake for one in shared],
        "time of each further grant": [one.passing for one in shared],
    }
    return {f"Redis waiters: {text}": {"x": x, "y": y} for text, y in curves.items()}


def wait(server: Redis, scale: Scale, tasks: int, kind: str = SHARED_LOCK) -> WaitFigures:
    """Let the tasks wait for a while, then release the lock."""
    server.ask("FLUSHALL")
    with leaselock.Client(server.url) as client:
        holder = client.lock(name_of(0, kind))
        holder.acquire()
        if kind == SEPARATE_LOCKS:
            _hold_others(server, tasks)
        before = clients(server)
        with python_worker("benchmarks.workers.waiters", server.url, tasks, kind) as worker:
            worker.receive()
            settle(server, kind, scale.settle_seconds)
            connections = clients(server) - before
            worker.send("")
            load = idle(server, max(scale.watch_seconds, 0.5))
            cost = worker.request("")
            released = time.monotonic_ns()
            holder.release()
            grants = [] if kind == SEPARATE_LOCKS else worker.receive()
    wake = (grants[0] - released) / 1e9 if grants else 0.0
    gaps = sorted(after - before for before, after in itertools.pairwise(grants))
    size = (connections, cost["memory"], cost["bare"], cost["busy"])
    return WaitFigures(tasks, *size, *load, wake, percentile(gaps, 50) / 1e9)


def settle(server: Redis, kind: str, pause: float) -> None:
    """Wait until the queue has not grown for *pause* seconds."""
    eventually(lambda: queued(server, kind), TIMEOUT)
    before = 0
    while (now := queued(server, kind)) != before:
        before = now
        time.sleep(pause)


def _hold_others(server: Redis, locks: int) -> None:
    """Hold all locks but the first, which is held already."""
    with server.wire() as wire:
        for number in range(1, locks):
            key = f"lock:{LOCK} {number}"
            wire.ask("HSET", key, "0-0-0-0-0:1", 1)
            wire.ask("PEXPIRE", key, 600_000)


def idle(server: Redis, seconds: float) -> tuple[float, float]:
    """Return the server's commands and CPU time per second."""
    before, began = load(server), time.monotonic()
    time.sleep(seconds)
    after, lasted = load(server), time.monotonic() - began
    return (after[0] - before[0] - 1) / lasted, (after[1] - before[1]) / lasted


def load(server: Redis) -> tuple[float, float]:
    """Return the commands, including this one, and the CPU time of the server until now."""
    facts = server.info()
    cpu = float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])
    return float(facts["total_commands_processed"]), cpu


def clients(server: Redis) -> int:
    """Return the number of connections of the server."""
    return int(server.info("clients")["connected_clients"])


def queued(server: Redis, kind: str) -> int:
    """Return the number of queue entries; one entry may stand for several tasks of a process."""
    if kind == SHARED_LOCK:
        return int(server.ask("ZCARD", f"leaselock:queue:{{lock:{name_of(0, kind)}}}"))
    queues = server.ask("EVAL", "return #redis.call('KEYS', 'leaselock:queue:*')", 0)
    return int(queues)
