"""Renewal of up to a hundred thousand leases by one client, on a private Redis.

The leases are observed for a third of their length, in which each is renewed once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from testkit.servers.redis import Redis

from benchmarks.tables import Goal, Table
from benchmarks.workers.process import python_worker
from benchmarks.workloads.redis_waiters import load
from leaselock._backends.redis.keys import keys_of
from leaselock._backends.redis.scripts import RENEW

if TYPE_CHECKING:
    from benchmarks.scale import Scale

MAX_CPU = 0.25
RENEWALS = 3
AT_ONCE = 500
HEAD = [
    *("leases", "client CPU, %", "server CPU, %", "commands/s", "commands per lease"),
    *("least remaining, share of the lease", "lost", "s to acquire all"),
]


class Renewal(NamedTuple):
    """The cost per second of renewing the leases."""

    leases: int
    busy: float
    server: float
    commands: float
    slack: float
    lost: int
    taking: float


def run(scale: Scale) -> list[Table]:
    """Measure all sizes."""
    with Redis() as server:
        renewals = [measure(server, count, scale.lease) for count in scale.leases]
        bare = bare_renewal(server, scale.leases[-1])
    rows = [_row(one, scale.lease) for one in renewals]
    goals = [
        Goal(
            f"{renewals[-1].leases:,} leases: client CPU, share of one core",
            renewals[-1].busy,
            MAX_CPU,
        ),
        Goal(f"{renewals[-1].leases:,} leases: number of lost leases", renewals[-1].lost, 0),
    ]
    x = [float(one.leases) for one in renewals]
    growth = {
        "Redis renewals: CPU of the client, by leases": {"x": x, "y": [k.busy for k in renewals]},
        "Redis renewals: commands/s, by leases": {"x": x, "y": [k.commands for k in renewals]},
    }
    data = {"renewals": [one._asdict() for one in renewals], "growth": growth, "lease": scale.lease}
    title = f"Redis, leases of {scale.lease:g} s renewed by one client"
    each = renewals[-1].busy * scale.lease / RENEWALS / renewals[-1].leases
    notes = [
        f"client CPU of a renewal: {each * 1e6:.1f} µs; packed and sent by hand, "
        f"{AT_ONCE} with each command: {bare * 1e6:.1f} µs"
    ]
    return [Table(title, HEAD, rows, data | {"bare": bare}, goals, notes)]


def measure(server: Redis, count: int, lease: float) -> Renewal:
    """Acquire the leases, and observe them for a third of their length."""
    server.ask("FLUSHALL")
    with python_worker("benchmarks.workers.leases", server.url, count, lease) as worker:
        taking = worker.receive()
        before, began = load(server), time.monotonic()
        worker.send("")
        time.sleep(lease / RENEWALS)
        after, lasted = load(server), time.monotonic() - began
        report = worker.request("")
    commands, server_cpu = ((after[i] - before[i]) / lasted for i in range(2))
    return Renewal(
        count, report["busy"], server_cpu, commands, report["slack"], report["lost"], taking
    )


def bare_renewal(server: Redis, count: int) -> float:
    """Return the client's CPU time for each lease of bare renewals."""
    owner = "01234567-89ab-cdef-0123-456789abcdef:1"
    names = [f"kept {number}" for number in range(count)]
    server.ask("SCRIPT", "LOAD", RENEW.text)
    with server.wire() as wire:
        cpu = time.process_time()
        for start in range(0, count, AT_ONCE):
            keys = [keys_of(name).lock for name in names[start : start + AT_ONCE]]
            arguments = [word for _ in keys for word in (30_000, owner)]
            wire.ask("EVALSHA", RENEW.sha, len(keys), *keys, "hash", *arguments)
        return (time.process_time() - cpu) / count


def _row(one: Renewal, lease: float) -> list[str]:
    each = one.commands * lease / RENEWALS / one.leases
    load = [f"{one.busy * 100:.1f}", f"{one.server * 100:.1f}", f"{one.commands:,.0f}"]
    left = [f"{one.slack / lease:.2f}", f"{one.lost}", f"{one.taking:.1f}"]
    return [f"{one.leases:,}", *load, f"{each:.1f}", *left]
