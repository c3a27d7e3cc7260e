"""The stores of the storms: each a private server or several, and what can befall them.

Law: a stage has no fault that its store does not promise to survive, so every overlap is a bug. The
servers keep their data; what they lose without, the pages of the stores say.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.process import HOST
from tests.servers.proxy import ACTIONS, Proxy
from tests.servers.redis import Redis
from tests.servers.zookeeper import Ensemble

import holdfast

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    Fault = Callable[[random.Random], None]

AWAY = 0.6


class Stage:
    """A store to play on. *idle* is how long it may stay idle, beside the lease and a freeze."""

    def __init__(self, url: str, faults: dict[str, Fault], idle: float = 3.0) -> None:
        self.url = url
        self.faults = faults
        self.idle = idle
        self.proxies: list[Proxy] = []

    def calm(self) -> None:
        """Nothing befalls it any more."""
        for proxy in self.proxies:
            proxy.calm()


def network(proxies: list[Proxy], fewer: int | None = None) -> dict[str, Fault]:
    """What a network does, to *fewer* of the proxies at once, or to all."""

    def some(lots: random.Random) -> list[Proxy]:
        return lots.sample(proxies, fewer or len(proxies))

    def cut(lots: random.Random) -> None:
        for proxy in some(lots):
            proxy.cut_all()

    def lose(lots: random.Random) -> None:
        for proxy in some(lots):
            # What is held back arrives when the storm is over, if not before.
            proxy.plan(lots.choice(ACTIONS), nth=lots.randint(1, 8))

    def part(lots: random.Random) -> None:
        chosen = some(lots)
        for proxy in chosen:
            proxy.silence()
        pause(lots)
        for proxy in chosen:
            proxy.heal()

    return {"cut": cut, "lose": lose, "partition": part}


def pause(lots: random.Random) -> None:
    """A while."""

    threading.Event().wait(lots.uniform(0.1, AWAY))


def sqlite(stack: ExitStack, folder: Path) -> Stage:
    """A file."""
    return Stage(f"sqlite:///{folder}/locks.db", {})


def redis(stack: ExitStack, folder: Path, protocol: str = "hash") -> Stage:
    """One server that writes everything to disk before it answers."""
    server = stack.enter_context(Redis(appendonly=True))
    proxy = stack.enter_context(Proxy(server.port))

    def restart(lots: random.Random) -> None:
        server.kill()
        server.start()

    def freeze(lots: random.Random) -> None:
        server.pause()
        pause(lots)
        server.cont()

    url = f"redis://{HOST}:{proxy.port}/0?protocol={protocol}"
    stage = Stage(url, {**network([proxy]), "restart": restart, "freeze server": freeze})
    stage.proxies = [proxy]
    return stage


def string(stack: ExitStack, folder: Path) -> Stage:
    """The same with the lock as a string."""
    return redis(stack, folder, "string")


def redlock(stack: ExitStack, folder: Path, masters: int = 3) -> Stage:
    """Several of them, of which a minority is struck at a time."""
    servers = [stack.enter_context(Redis(appendonly=True)) for _ in range(masters)]
    proxies = [stack.enter_context(Proxy(server.port)) for server in servers]
    fewer = masters // 2

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

    url = ",".join(f"redis://{HOST}:{proxy.port}/0" for proxy in proxies)
    faults = {**network(proxies, fewer), "restart": restart, "freeze server": freeze}
    stage = Stage(url, faults, idle=8.0)
    stage.proxies = proxies
    return stage


def redlock_of_five(stack: ExitStack, folder: Path) -> Stage:
    """Five."""
    return redlock(stack, folder, 5)


def zookeeper(stack: ExitStack, folder: Path) -> Stage:
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
    stage = Stage(url, {**network(proxies), "kill server": kill}, idle=15.0)
    stage.proxies = proxies
    return stage


def of_sql(protocol: str, proxy: Proxy, terminate: Fault) -> dict[str, Fault]:
    """A hold that lives in a connection is over when that ends, and its holder hears of it a
    moment later: against that there are tokens. A lease does not care for connections.
    """
    faults = network([proxy])
    if protocol == "lease":
        return {**faults, "terminate": terminate}
    return {"partition": faults["partition"]}


def postgres(stack: ExitStack, folder: Path, protocol: str = "lease") -> Stage:
    """One server, whose backends are terminated."""
    server = stack.enter_context(Postgres())
    with holdfast.Client(server.url) as client:
        client.setup()
    proxy = stack.enter_context(Proxy(server.port))

    def terminate(lots: random.Random) -> None:
        rows = server.query(
            "SELECT pid FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'holdfast'"
        )
        if rows:
            server.query(f"SELECT pg_terminate_backend({lots.choice(rows)[0]})")

    url = server.url.replace(f":{server.port}/", f":{proxy.port}/")
    stage = Stage(f"{url}?protocol={protocol}", of_sql(protocol, proxy, terminate), idle=10.0)
    stage.proxies = [proxy]
    return stage


def mariadb(stack: ExitStack, folder: Path, protocol: str = "lease") -> Stage:
    """One server, whose connections are killed."""
    server = stack.enter_context(MariaDB())
    with holdfast.Client(server.url) as client:
        client.setup()
    proxy = stack.enter_context(Proxy(server.port))

    def terminate(lots: random.Random) -> None:
        rows = server.query("SELECT id FROM information_schema.processlist WHERE user = 'holdfast'")
        if rows:
            server.do(f"KILL {lots.choice(rows)[0]}")

    url = server.url.replace(f":{server.port}/", f":{proxy.port}/")
    stage = Stage(f"{url}?protocol={protocol}", of_sql(protocol, proxy, terminate), idle=10.0)
    stage.proxies = [proxy]
    return stage


STAGES: dict[str, Callable[[ExitStack, Path], Stage]] = {
    "sqlite": sqlite,
    "redis": redis,
    "redis-string": string,
    "redlock-3": redlock,
    "redlock-5": redlock_of_five,
    "zookeeper": zookeeper,
    "postgres-lease": postgres,
    "postgres-row": lambda stack, folder: postgres(stack, folder, "row"),
    "postgres-advisory": lambda stack, folder: postgres(stack, folder, "advisory"),
    "mariadb-lease": mariadb,
    "mariadb-row": lambda stack, folder: mariadb(stack, folder, "row"),
    "mariadb-advisory": lambda stack, folder: mariadb(stack, folder, "advisory"),
}
