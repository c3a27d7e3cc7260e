"""The stores of the storms: each a private server or several, and what can befall them.

Law: as in `leaselock.testing.chaos.stage`. The servers keep their data; what they lose without, the
pages of the stores say.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.servers.process import HOST
from tests.servers.zookeeper import Ensemble
from tests.storms import parted, redis, sql
from tests.storms.disk import sqlite
from tests.storms.network import network, pause, proxied

from leaselock.testing.chaos.stage import Stage
from leaselock.testing.proxy import Proxy

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path


def zookeeper(name: str, stack: ExitStack, folder: Path) -> Stage:
    """An ensemble of three, of which one dies at a time."""
    ensemble = stack.enter_context(Ensemble())
    proxies = [stack.enter_context(Proxy(server.port)) for server in ensemble.servers]

    def kill(lots: random.Random) -> None:
        victim = lots.choice(ensemble.servers)
        victim.running().kill()
        pause(lots)
        victim.start()
        ensemble.settle()

    hosts = ",".join(f"{HOST}:{proxy.port}" for proxy in proxies)
    url = f"zookeeper://{hosts}/storm?timeout=2"
    stage = Stage(name, url, {**network(proxies), "kill server": kill}, idle=15.0)
    return proxied(stage, proxies)


STAGES: dict[str, Callable[[str, ExitStack, Path], Stage]] = {
    "sqlite": sqlite,
    "redis": redis.single,
    "redis-string": redis.string,
    "redis-sentinel": redis.sentinel,
    "redis-cluster": redis.cluster,
    "redlock-3": redis.redlock,
    "redlock-5": redis.redlock_of_five,
    "zookeeper": zookeeper,
    "postgres-lease": sql.postgres,
    "postgres-row": partial(sql.postgres, protocol="row"),
    "postgres-advisory": partial(sql.postgres, protocol="advisory"),
    "mariadb-lease": sql.mariadb,
    "mariadb-row": partial(sql.mariadb, protocol="row"),
    "mariadb-advisory": partial(sql.mariadb, protocol="advisory"),
    "redis-parted": parted.redis,
    "redlock-3-parted": parted.redlock,
    "zookeeper-parted": parted.zookeeper,
    "postgres-lease-parted": parted.postgres,
}
