"""Leases that one client holds on a private Redis, up to a hundred thousand, and renews.

Law: they are watched for a whole third of the lease, in which each is renewed once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.redis import Redis

from benchmarks.crew import python
from benchmarks.tables import Goal, Table
from benchmarks.workloads.redis_waiters import load

if TYPE_CHECKING:
    from benchmarks.scale import Scale

BUSY_MOST = 0.25
RENEWALS = 3
HEAD = [
    *("leases", "client CPU, %", "server CPU, %", "commands/s", "of them for each lease"),
    *("least time left, of the lease", "lost", "s to take all"),
]


class Kept(NamedTuple):
    """What it costs to keep so many for a second."""

    leases: int
    busy: float
    server: float
    commands: float
    slack: float
    lost: int
    taking: float


def run(scale: Scale) -> list[Table]:
    """Keep them, in all sizes."""
    with Redis() as server:
        kept = [keep(server, count, scale.lease) for count in scale.leases]
    rows = [_row(one, scale.lease) for one in kept]
    goals = [
        Goal(
            f"{kept[-1].leases:,} leases: CPU of the client, of one core", kept[-1].busy, BUSY_MOST
        ),
        Goal(f"{kept[-1].leases:,} leases: how many are lost", kept[-1].lost, 0),
    ]
    x = [float(one.leases) for one in kept]
    growth = {
        "Redis renewals: CPU of the client, by leases": {"x": x, "y": [k.busy for k in kept]},
        "Redis renewals: commands/s, by leases": {"x": x, "y": [k.commands for k in kept]},
    }
    data = {"kept": [one._asdict() for one in kept], "growth": growth, "lease": scale.lease}
    title = f"Redis, leases of {scale.lease:g} s that one client renews"
    return [Table(title, HEAD, rows, data, goals)]


def keep(server: Redis, count: int, lease: float) -> Kept:
    """Take them, and keep them for a third of the lease."""
    server.ask("FLUSHALL")
    with python("benchmarks.leases", server.url, count, lease) as member:
        taking = member.hear()
        before, began = load(server), time.monotonic()
        member.tell("")
        time.sleep(lease / RENEWALS)
        after, lasted = load(server), time.monotonic() - began
        told = member.ask("")
    commands, server_cpu = ((after[i] - before[i]) / lasted for i in range(2))
    return Kept(count, told["busy"], server_cpu, commands, told["slack"], told["lost"], taking)


def _row(one: Kept, lease: float) -> list[str]:
    each = one.commands * lease / RENEWALS / one.leases
    load = [f"{one.busy * 100:.1f}", f"{one.server * 100:.1f}", f"{one.commands:,.0f}"]
    left = [f"{one.slack / lease:.2f}", f"{one.lost}", f"{one.taking:.1f}"]
    return [f"{one.leases:,}", *load, f"{each:.1f}", *left]
