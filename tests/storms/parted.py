"""Stores in networks of their own, half of the workers in another: partitions that say nothing.

Law: what is cut vanishes on the way, unlike behind a proxy, whose kernel goes on answering. Half of
the workers, or one of several servers, may be cut off while the others go on: the lock of a holder
out there must pass on, and no sooner than its holder has stopped believing.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.servers.net import Net
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.zookeeper import Ensemble

import leaselock
from leaselock.testing.chaos.stage import Stage

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from tests.servers.process import Place

    from leaselock.testing.chaos.stage import Fault

# Shorter than the lease of the workers, which is half a second, and longer.
LENGTHS = (0.2, 0.9, 1.8)
IDLE = 15.0


class Parted:
    """A network: this machine, a place for half of the workers, and one for each server."""

    def __init__(self, stack: ExitStack, servers: int, fewer: int) -> None:
        self.net = stack.enter_context(Net())
        self.far = self.net.place()
        self.servers = [self.net.place() for _ in range(servers)]
        self.fewer = fewer

    def stage(self, name: str, url: str, **more: Fault) -> Stage:
        """What befalls it: both ways or one, for one half of the workers or for some servers."""
        net = self.net
        faults = {
            "cut off workers": self._struck(net.part, lambda lots: [self.far]),
            "mute workers": self._struck(net.mute, lambda lots: [self.far]),
            "deaf workers": self._struck(lambda w, s: net.mute(s, w), lambda lots: [self.far]),
            "partition": self._struck(net.part, lambda lots: [self.far, net.near]),
            **more,
        }
        return Stage(name, url, faults, idle=IDLE, calm=net.heal, entries=((), self.far.enter))

    def _struck(
        self, cut: Callable[[Place, Place], None], workers: Callable[[random.Random], list[Place]]
    ) -> Fault:
        def strike(lots: random.Random) -> None:
            for server in lots.sample(self.servers, self.fewer):
                for place in workers(lots):
                    cut(place, server)
            self.wait(lots)

        return strike

    def between_servers(self, lots: random.Random) -> None:
        """One of them reaches none of the others, and the workers reach all."""
        lone = lots.choice(self.servers)
        for server in self.servers:
            if server != lone:
                self.net.part(lone, server)
        self.wait(lots)

    def wait(self, lots: random.Random) -> None:
        """And heal."""
        threading.Event().wait(lots.choice(LENGTHS))
        self.net.heal()


def redis(name: str, stack: ExitStack, folder: Path) -> Stage:
    """One server."""
    parted = Parted(stack, 1, 1)
    server = stack.enter_context(Redis(appendonly=True, place=parted.servers[0]))
    return parted.stage(name, server.url)


def redlock(name: str, stack: ExitStack, folder: Path) -> Stage:
    """Three, of which one at a time is cut off."""
    parted = Parted(stack, 3, 1)
    masters = [stack.enter_context(Redis(appendonly=True, place=p)) for p in parted.servers]
    return parted.stage(name, ",".join(master.url for master in masters))


def zookeeper(name: str, stack: ExitStack, folder: Path) -> Stage:
    """An ensemble, of which one server at a time loses the others, be it the leader."""
    parted = Parted(stack, 3, 3)
    ensemble = stack.enter_context(Ensemble(places=parted.servers))
    url = f"zookeeper://{ensemble.hosts}/storm?timeout=1"
    return parted.stage(name, url, **{"part servers": parted.between_servers})


def postgres(name: str, stack: ExitStack, folder: Path) -> Stage:
    """Protocol `lease`, which does not care for connections."""
    parted = Parted(stack, 1, 1)
    server = stack.enter_context(Postgres(parted.servers[0]))
    with leaselock.Client(server.url) as client:
        client.setup()
    return parted.stage(name, server.url)
