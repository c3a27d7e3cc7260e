"""The targets of chaos runs: stores on private servers, and their faults.

The invariant of `testkit.chaos.target` holds. The servers write their data to disk; the
stores' pages in docs/stores say what is lost otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from testkit.chaos.target import Target
from testkit.proxy import Proxy
from testkit.servers.dynamodb import DynamoDB
from testkit.servers.etcd import Etcd
from testkit.servers.kubernetes import KubeApiserver
from testkit.servers.process import HOST
from testkit.servers.zookeeper import Ensemble
from verification.chaos import partitioned, redis, sql
from verification.chaos.disk import sqlite
from verification.chaos.network_faults import behind_proxies, network_faults, pause

import leaselock

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path


def zookeeper(name: str, stack: ExitStack, folder: Path) -> Target:
    """An ensemble of three servers, of which one at a time is killed."""
    ensemble = stack.enter_context(Ensemble())
    proxies = [stack.enter_context(Proxy(server.port)) for server in ensemble.servers]

    def kill(rng: random.Random) -> None:
        victim = rng.choice(ensemble.servers)
        victim.running().kill()
        pause(rng)
        victim.start()
        ensemble.wait_until_ready()

    hosts = ",".join(f"{HOST}:{proxy.port}" for proxy in proxies)
    url = f"zookeeper://{hosts}/chaos?timeout=2"
    target = Target(name, url, {**network_faults(proxies), "kill server": kill}, idle=15.0)
    return behind_proxies(target, proxies)


def etcd(name: str, stack: ExitStack, folder: Path) -> Target:
    """Three members, of which one at a time is killed or frozen; the history is compacted."""
    server = stack.enter_context(Etcd(3))
    proxies = [stack.enter_context(Proxy(member.port)) for member in server.members]

    def kill(rng: random.Random) -> None:
        rng.choice(server.members).running().kill()
        pause(rng)
        server.start()

    def freeze(rng: random.Random) -> None:
        process = rng.choice(server.members).running()
        process.pause()
        pause(rng)
        process.cont()
        server.wait_until_ready()

    faults = {"kill server": kill, "freeze server": freeze, "compact": lambda _: server.compact()}
    url = f"etcd://{','.join(f'{HOST}:{proxy.port}' for proxy in proxies)}/chaos"
    target = Target(name, url, {**network_faults(proxies), **faults}, idle=15.0)
    return behind_proxies(target, proxies)


def kubernetes(name: str, stack: ExitStack, folder: Path) -> Target:
    """An API server, which is killed or frozen, as is its etcd."""
    server = stack.enter_context(KubeApiserver())
    proxy = stack.enter_context(Proxy(server.port))

    def kill(rng: random.Random) -> None:
        server.running().kill()
        pause(rng)
        server.start()

    def kill_etcd(rng: random.Random) -> None:
        server.etcd.members[0].running().kill()
        pause(rng)
        server.etcd.start()

    def freeze(rng: random.Random) -> None:
        process = rng.choice([server.running(), server.etcd.members[0].running()])
        process.pause()
        pause(rng)
        process.cont()

    faults = {"kill server": kill, "kill etcd": kill_etcd, "freeze server": freeze}
    # A worker whose clock has jumped back would find the certificate not valid yet.
    access = server.kubeconfig(port=proxy.port, verified=False)
    url = server.url(server.namespace(), kubeconfig=access)
    target = Target(name, url, {**network_faults([proxy]), **faults}, idle=15.0)
    return behind_proxies(target, [proxy])


def dynamodb(name: str, stack: ExitStack, folder: Path) -> Target:
    """Amazon's engine for tests, which keeps its data when it is killed."""
    server = DynamoDB(durable=True)
    stack.callback(server.close)
    with leaselock.Client(server.url(name)) as client:
        client.setup()
    proxy = stack.enter_context(Proxy(server.port))

    def kill(rng: random.Random) -> None:
        server.stop()
        pause(rng)
        server.start()

    def freeze(rng: random.Random) -> None:
        process = server.running()
        process.pause()
        pause(rng)
        process.cont()

    faults = {**network_faults([proxy]), "kill server": kill, "freeze server": freeze}
    url = server.url(name, endpoint=f"http://{HOST}:{proxy.port}")
    return behind_proxies(Target(name, url, faults, idle=15.0), [proxy])


def sharing(
    make: Callable[[str, ExitStack, Path], Target],
) -> Callable[[str, ExitStack, Path], Target]:
    """The same target, whose workers also read and take permits."""

    def made(name: str, stack: ExitStack, folder: Path) -> Target:
        return make(name, stack, folder)._replace(shares=True)

    return made


TARGETS: dict[str, Callable[[str, ExitStack, Path], Target]] = {
    "sqlite": sqlite,
    "redis": redis.single,
    "redis-string": redis.string,
    "redis-sentinel": redis.sentinel,
    "redis-cluster": redis.cluster,
    "redlock-3": redis.redlock,
    "redlock-5": redis.redlock_of_five,
    "zookeeper": zookeeper,
    "etcd": etcd,
    "kubernetes": kubernetes,
    "dynamodb": dynamodb,
    "postgres-lease": sql.postgres,
    "postgres-row": partial(sql.postgres, protocol="row"),
    "postgres-advisory": partial(sql.postgres, protocol="advisory"),
    "mariadb-lease": sql.mariadb,
    "mariadb-row": partial(sql.mariadb, protocol="row"),
    "mariadb-advisory": partial(sql.mariadb, protocol="advisory"),
    "sqlite-sharing": sharing(sqlite),
    "redis-sharing": sharing(redis.single),
    "zookeeper-sharing": sharing(zookeeper),
    "etcd-sharing": sharing(etcd),
    "kubernetes-sharing": sharing(kubernetes),
    "dynamodb-sharing": sharing(dynamodb),
    "postgres-lease-sharing": sharing(sql.postgres),
    "postgres-row-sharing": sharing(partial(sql.postgres, protocol="row")),
    "postgres-advisory-sharing": sharing(partial(sql.postgres, protocol="advisory")),
    "mariadb-lease-sharing": sharing(sql.mariadb),
    "redis-partition": partitioned.redis,
    "redlock-3-partition": partitioned.redlock,
    "zookeeper-partition": partitioned.zookeeper,
    "postgres-lease-partition": partitioned.postgres,
}
