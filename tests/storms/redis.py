"""Redis, in the ways that it is set up; everything is written to disk before it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.servers.cluster import Cluster
from tests.servers.process import HOST
from tests.servers.redis import Redis
from tests.servers.sentinel import Sentinels
from tests.storms.network import network, pause, proxied

from leaselock.testing.chaos.stage import Stage
from leaselock.testing.proxy import Proxy

if TYPE_CHECKING:
    import random
    from contextlib import ExitStack
    from pathlib import Path

    from leaselock.testing.chaos.stage import Fault


def struck(servers: list[Redis], fewer: int) -> dict[str, Fault]:
    """What befalls *fewer* of the servers at once."""

    def restart(lots: random.Random) -> None:
        for server in lots.sample(servers, fewer):
            server.kill()
            server.start()

    def freeze(lots: random.Random) -> None:
        chosen = lots.sample(servers, fewer)
        for server in chosen:
            server.pause()
        pause(lots)
        for server in chosen:
            server.cont()

    return {"restart": restart, "freeze server": freeze}


def single(name: str, stack: ExitStack, folder: Path, protocol: str = "hash") -> Stage:
    """One server."""
    server = stack.enter_context(Redis(appendonly=True))
    proxies = [stack.enter_context(Proxy(server.port))]
    url = f"redis://{HOST}:{proxies[0].port}/0?protocol={protocol}"
    return proxied(Stage(name, url, {**network(proxies), **struck([server], 1)}), proxies)


def string(name: str, stack: ExitStack, folder: Path) -> Stage:
    """The same with the lock as a string."""
    return single(name, stack, folder, "string")


def redlock(name: str, stack: ExitStack, folder: Path, masters: int = 3) -> Stage:
    """Several of them, of which a minority is struck at a time."""
    servers = [stack.enter_context(Redis(appendonly=True)) for _ in range(masters)]
    proxies = [stack.enter_context(Proxy(server.port)) for server in servers]
    fewer = masters // 2
    url = ",".join(f"redis://{HOST}:{proxy.port}/0" for proxy in proxies)
    faults = {**network(proxies, fewer), **struck(servers, fewer)}
    return proxied(Stage(name, url, faults, idle=8.0), proxies)


def redlock_of_five(name: str, stack: ExitStack, folder: Path) -> Stage:
    """Five."""
    return redlock(name, stack, folder, 5)


def sentinel(name: str, stack: ExitStack, folder: Path) -> Stage:
    """A master that dies, and a replica that takes its place, perhaps without its last words."""
    servers = stack.enter_context(Sentinels(appendonly=True))

    def fail_over(lots: random.Random) -> None:
        old = servers.master
        servers.fail_over()
        pause(lots)
        servers.revive(old)

    return Stage(name, servers.url, {"fail over": fail_over}, idle=15.0, exclusive=False)


def cluster(name: str, stack: ExitStack, folder: Path) -> Stage:
    """The same in a cluster, for one of its slots at a time."""
    servers = stack.enter_context(Cluster())

    def fail_over(lots: random.Random) -> None:
        slot = lots.randrange(16384)
        old = servers.owner(slot)
        servers.fail_over(slot)
        pause(lots)
        servers.revive(old)

    return Stage(name, servers.url, {"fail over": fail_over}, idle=15.0, exclusive=False)
