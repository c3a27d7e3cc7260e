"""Stores in network namespaces, half of the workers in another one: silent partitions.

Packets are dropped on the way, unlike behind a proxy, whose kernel goes on acknowledging. Half of
the workers, or one of several servers, may be cut off while the others go on: the lock of a holder
that is cut off must be granted to another, but not before its lease has become invalid.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from testkit.chaos.target import Target
from testkit.servers.net import Net
from testkit.servers.postgres import Postgres
from testkit.servers.redis import Redis
from testkit.servers.zookeeper import Ensemble

import leaselock

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from testkit.chaos.target import Fault
    from testkit.servers.process import Location

# Shorter than the lease of the workers, which is half a second, and longer.
LENGTHS = (0.2, 0.9, 1.8)
IDLE = 15.0


class PartitionedNetwork:
    """A network: this machine, a host for half of the workers, and one for each server."""

    def __init__(self, stack: ExitStack, servers: int, count: int) -> None:
        self.net = stack.enter_context(Net())
        self.far = self.net.add_location()
        self.servers = [self.net.add_location() for _ in range(servers)]
        self.count = count

    def target(self, name: str, url: str, **more: Fault) -> Target:
        """Return a target with partitions, in both directions or one, of workers or servers."""
        net = self.net
        faults = {
            "cut off workers": self._partition_fault(net.part, lambda rng: [self.far]),
            "workers that send nothing": self._partition_fault(net.mute, lambda rng: [self.far]),
            "workers that receive nothing": self._partition_fault(
                lambda w, s: net.mute(s, w), lambda rng: [self.far]
            ),
            "partition": self._partition_fault(net.part, lambda rng: [self.far, net.near]),
            **more,
        }
        return Target(name, url, faults, idle=IDLE, restore=net.heal, prefixes=((), self.far.enter))

    def _partition_fault(
        self,
        cut: Callable[[Location, Location], None],
        workers: Callable[[random.Random], list[Location]],
    ) -> Fault:
        def strike(rng: random.Random) -> None:
            for server in rng.sample(self.servers, self.count):
                for location in workers(rng):
                    cut(location, server)
            self.wait(rng)

        return strike

    def between_servers(self, rng: random.Random) -> None:
        """Cut one server off from the other servers; workers still reach all of them."""
        lone = rng.choice(self.servers)
        for server in self.servers:
            if server != lone:
                self.net.part(lone, server)
        self.wait(rng)

    def wait(self, rng: random.Random) -> None:
        """Wait for a random time, then restore the network."""
        threading.Event().wait(rng.choice(LENGTHS))
        self.net.heal()


def redis(name: str, stack: ExitStack, folder: Path) -> Target:
    """One server."""
    partitioned = PartitionedNetwork(stack, 1, 1)
    server = stack.enter_context(Redis(appendonly=True, location=partitioned.servers[0]))
    return partitioned.target(name, server.url)


def redlock(name: str, stack: ExitStack, folder: Path) -> Target:
    """Three masters, of which one at a time is cut off."""
    partitioned = PartitionedNetwork(stack, 3, 1)
    masters = [stack.enter_context(Redis(appendonly=True, location=p)) for p in partitioned.servers]
    return partitioned.target(name, ",".join(master.url for master in masters))


def zookeeper(name: str, stack: ExitStack, folder: Path) -> Target:
    """An ensemble, of which one server at a time, possibly the leader, is cut off."""
    partitioned = PartitionedNetwork(stack, 3, 3)
    ensemble = stack.enter_context(Ensemble(locations=partitioned.servers))
    url = f"zookeeper://{ensemble.hosts}/chaos?timeout=1"
    return partitioned.target(name, url, **{"part servers": partitioned.between_servers})


def postgres(name: str, stack: ExitStack, folder: Path) -> Target:
    """PostgreSQL with protocol `lease`, whose holds survive the end of a connection."""
    partitioned = PartitionedNetwork(stack, 1, 1)
    server = stack.enter_context(Postgres(partitioned.servers[0]))
    with leaselock.Client(server.url) as client:
        client.setup()
    return partitioned.target(name, server.url)
