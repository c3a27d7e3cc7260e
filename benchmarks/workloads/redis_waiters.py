"""Tasks that wait on a private Redis, one to ten thousand in a process: what it costs meanwhile.

Law: the lock is held by a client of another process, whose renewals are the only load that is not
the waiters' own. How long its release takes to reach the first of them is measured at the end.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.process import eventually
from tests.servers.redis import Redis

import leaselock
from benchmarks.crew import python
from benchmarks.figures import percentile
from benchmarks.tables import Goal, Table
from benchmarks.waiters import LOCK, SCATTERED, TOGETHER, name_of

if TYPE_CHECKING:
    from benchmarks.scale import Scale

MOST_BYTES = 3000.0
IDLE_COMMANDS = 1.0
PATIENCE = 120.0
HEAD = [
    *("waiters", "connections", "KB each", "MB", "CPU, %", "server commands/s"),
    *("server CPU, %", "wake-up, ms", "next grants, µs"),
]


class Wait(NamedTuple):
    """What a process of waiting tasks costs."""

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
        """Bytes for each of them."""
        return max(0, self.memory - self.bare) / self.tasks


def run(scale: Scale) -> list[Table]:
    """Wait for one lock, in all sizes, and at last each for its own."""
    with Redis() as server:
        together = [wait(server, scale, tasks) for tasks in scale.waiters]
        scattered = wait(server, scale, scale.waiters[-1], SCATTERED)
    rows = [_row(f"{one.tasks:,} for one lock", one) for one in together]
    rows.append(_row(f"{scattered.tasks:,}, a lock for each", scattered))
    most = together[-1]
    goals = [
        Goal("connections", most.connections, 1),
        Goal("bytes of a waiter", most.each, MOST_BYTES),
        Goal("server commands/s beyond the INFO that counts them", most.commands, IDLE_COMMANDS),
    ]
    goals = [goal._replace(text=f"{most.tasks:,} for one lock: {goal.text}") for goal in goals]
    data = {"together": [one._asdict() for one in together], "scattered": scattered._asdict()}
    title = "Redis, tasks of one process that wait for what another holds"
    return [Table(title, HEAD, rows, data | {"growth": _growth(together)}, goals)]


def _row(title: str, one: Wait) -> list[str]:
    woken = [f"{one.wake * 1e3:.2f}", f"{one.passing * 1e6:,.0f}"] if one.wake else ["", ""]
    idle = [f"{one.busy * 100:.1f}", f"{one.commands:.1f}", f"{one.server * 100:.1f}"]
    size = [f"{one.connections}", f"{one.each / 1e3:.1f}", f"{one.memory / 1e6:.0f}"]
    return [title, *size, *idle, *woken]


def _growth(together: list[Wait]) -> dict[str, dict[str, list[float]]]:
    x = [float(one.tasks) for one in together]
    curves = {
        "memory of the process": [float(one.memory) for one in together],
        "wake-up of the first": [one.wake for one in together],
        "time of each further grant": [one.passing for one in together],
    }
    return {f"Redis waiters: {text}": {"x": x, "y": y} for text, y in curves.items()}


def wait(server: Redis, scale: Scale, tasks: int, kind: str = TOGETHER) -> Wait:
    """Let them wait for a while, then let go."""
    server.ask("FLUSHALL")
    with leaselock.Client(server.url) as client:
        holder = client.lock(name_of(0, kind))
        holder.acquire()
        if kind == SCATTERED:
            _held_by_somebody(server, tasks)
        before = clients(server)
        with python("benchmarks.waiters", server.url, tasks, kind) as member:
            member.hear()
            settle(server, kind, scale.settling)
            connections = clients(server) - before
            member.tell("")
            load = idle(server, max(scale.wait, 0.5))
            cost = member.ask("")
            released = time.monotonic_ns()
            holder.release()
            grants = [] if kind == SCATTERED else member.hear()
    wake = (grants[0] - released) / 1e9 if grants else 0.0
    gaps = sorted(after - before for before, after in itertools.pairwise(grants))
    size = (connections, cost["memory"], cost["bare"], cost["busy"])
    return Wait(tasks, *size, *load, wake, percentile(gaps, 50) / 1e9)


def settle(server: Redis, kind: str, pause: float) -> None:
    """Until nobody has come to stand in line for so long."""
    eventually(lambda: queued(server, kind), PATIENCE)
    before = 0
    while (now := queued(server, kind)) != before:
        before = now
        time.sleep(pause)


def _held_by_somebody(server: Redis, locks: int) -> None:
    """All but the first, which is held already."""
    with server.wire() as wire:
        for number in range(1, locks):
            wire.ask("HSET", f"{LOCK} {number}", "somebody:1", 1)
            wire.ask("PEXPIRE", f"{LOCK} {number}", 600_000)


def idle(server: Redis, seconds: float) -> tuple[float, float]:
    """Commands and seconds of processor that the server uses in a second."""
    before, began = load(server), time.monotonic()
    time.sleep(seconds)
    after, lasted = load(server), time.monotonic() - began
    return (after[0] - before[0] - 1) / lasted, (after[1] - before[1]) / lasted


def load(server: Redis) -> tuple[float, float]:
    """What it has used until now: commands, this one included, and seconds of processor."""
    facts = server.info()
    cpu = float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])
    return float(facts["total_commands_processed"]), cpu


def clients(server: Redis) -> int:
    """How many connections the server has."""
    return int(server.info("clients")["connected_clients"])


def queued(server: Redis, kind: str) -> int:
    """How many stand in queues; some may wait in their process for who stands there for them."""
    if kind == TOGETHER:
        return int(server.ask("ZCARD", f"leaselock:queue:{{{name_of(0, kind)}}}"))
    queues = server.ask("EVAL", "return #redis.call('KEYS', 'leaselock:queue:*')", 0)
    return int(queues)
