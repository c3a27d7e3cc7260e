"""Redis in several topologies; every write reaches the disk before its reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.chaos.target import Target
from testkit.proxy import Proxy
from testkit.servers.cluster import Cluster
from testkit.servers.process import HOST
from testkit.servers.redis import Redis
from testkit.servers.sentinel import Sentinels
from verification.chaos.network_faults import behind_proxies, network_faults, pause

if TYPE_CHECKING:
    import random
    from contextlib import ExitStack
    from pathlib import Path

    from testkit.chaos.target import Fault


def server_faults(servers: list[Redis], count: int) -> dict[str, Fault]:
    """Return faults that affect *count* of the servers at once."""

    def restart(rng: random.Random) -> None:
        for server in rng.sample(servers, count):
            server.kill()
            server.start()

    def freeze(rng: random.Random) -> None:
        chosen = rng.sample(servers, count)
        for server in chosen:
            server.pause()
        pause(rng)
        for server in chosen:
            server.cont()

    return {"restart": restart, "freeze server": freeze}


def single(name: str, stack: ExitStack, folder: Path, protocol: str = "hash") -> Target:
    """One server."""
    server = stack.enter_context(Redis(appendonly=True))
    proxies = [stack.enter_context(Proxy(server.port))]
    url = f"redis://{HOST}:{proxies[0].port}/0?protocol={protocol}"
    return behind_proxies(
        Target(name, url, {**network_faults(proxies), **server_faults([server], 1)}), proxies
    )


def string(name: str, stack: ExitStack, folder: Path) -> Target:
    """One server, with the string format."""
    return single(name, stack, folder, "string")


def redlock(name: str, stack: ExitStack, folder: Path, masters: int = 3) -> Target:
    """Several masters, of which a minority is affected at a time."""
    servers = [stack.enter_context(Redis(appendonly=True)) for _ in range(masters)]
    proxies = [stack.enter_context(Proxy(server.port)) for server in servers]
    count = masters // 2
    url = ",".join(f"redis://{HOST}:{proxy.port}/0" for proxy in proxies)
    faults = {**network_faults(proxies, count), **server_faults(servers, count)}
    return behind_proxies(Target(name, url, faults, idle=8.0), proxies)


def redlock_of_five(name: str, stack: ExitStack, folder: Path) -> Target:
    """Five masters."""
    return redlock(name, stack, folder, 5)


def sentinel(name: str, stack: ExitStack, folder: Path) -> Target:
    """Sentinel: the master is killed; a replica, possibly without its last writes, replaces it."""
    servers = stack.enter_context(Sentinels(appendonly=True))

    def fail_over(rng: random.Random) -> None:
        old = servers.master
        servers.fail_over()
        pause(rng)
        servers.revive(old)

    return Target(name, servers.url, {"fail over": fail_over}, idle=15.0, exclusive=False)


def cluster(name: str, stack: ExitStack, folder: Path) -> Target:
    """Cluster: the same for the owner of one random slot."""
    servers = stack.enter_context(Cluster())

    def fail_over(rng: random.Random) -> None:
        slot = rng.randrange(16384)
        old = servers.owner(slot)
        servers.fail_over(slot)
        pause(rng)
        servers.revive(old)

    return Target(name, servers.url, {"fail over": fail_over}, idle=15.0, exclusive=False)
