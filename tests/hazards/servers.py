"""Private servers for the hazard table, and the disasters that only a private server may suffer.

Law: a disaster ends with a store that serves again, at the same address.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING

from tests.hazards.standbys import MariaPair, PostgresPair
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.process import HOST, eventually
from tests.servers.redis import Redis
from tests.servers.zookeeper import Ensemble

from leaselock.testing.hazards.places import Place
from leaselock.testing.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


# Pairs of databases are started for two cells at a time.
HEAVY = BoundedSemaphore(2)


class Disaster:
    """A store at *url*, and what happens to it."""

    def __init__(self, url: str, strike: Callable[[], object]) -> None:
        self.url = url
        self._strike = strike

    def lag(self) -> None:
        """It has no replica."""

    def strike(self) -> None:
        """Let it happen."""
        self._strike()


class Pair:
    """A Redis and its replica, behind one address that follows the master."""

    def __init__(self, stack: ExitStack) -> None:
        self.master = stack.enter_context(Redis())
        self.stream = stack.enter_context(Proxy(self.master.port))
        self.replica = stack.enter_context(Redis("replicaof", f"{HOST} {self.stream.port}"))
        eventually(lambda: self.replica.info("replication").get("master_link_status") == "up")
        self.address = stack.enter_context(Proxy(self.master.port))
        self.url = f"redis://{HOST}:{self.address.port}/0"

    def lag(self) -> None:
        """From now on the replica gets nothing."""
        self.stream.silence()

    def strike(self) -> None:
        """The master dies, the replica takes its place."""
        self.master.kill()
        self.replica.ask("REPLICAOF", "NO", "ONE")
        self.address.target = (HOST, self.replica.port)
        self.address.cut_all()


@contextmanager
def failing_redis() -> Iterator[Pair]:
    """A failover to a replica that lags."""
    with ExitStack() as stack:
        yield Pair(stack)


@contextmanager
def failing_redlock() -> Iterator[Pair]:
    """The same for one of three masters."""
    with ExitStack() as stack:
        pair = Pair(stack)
        others = [stack.enter_context(Redis()).url for _ in range(2)]
        pair.url = ",".join([pair.url, *others])
        yield pair


@contextmanager
def failing_postgres() -> Iterator[PostgresPair]:
    """A failover to a standby that lags."""
    with HEAVY, ExitStack() as stack:
        yield PostgresPair(stack)


@contextmanager
def failing_mariadb() -> Iterator[MariaPair]:
    """A failover to a replica that lags."""
    with HEAVY, ExitStack() as stack:
        yield MariaPair(stack)


@contextmanager
def restarting_redis() -> Iterator[Disaster]:
    """A server that writes nothing to disk."""
    with Redis() as server:
        yield Disaster(server.url, lambda: killed(server))


@contextmanager
def restarting_redlock() -> Iterator[Disaster]:
    """One of three such servers."""
    with ExitStack() as stack:
        servers = [stack.enter_context(Redis()) for _ in range(3)]
        yield Disaster(",".join(s.url for s in servers), lambda: killed(servers[0]))


def killed(server: Redis | Postgres | MariaDB) -> None:
    """Kill it, and start it again."""
    server.kill()
    server.start()


def deposed(ensemble: Ensemble) -> None:
    """Kill the leader, wait for another, and let it come back."""
    leader = ensemble.leader()
    leader.running().kill()
    ensemble.settle()
    eventually(lambda: any(server.role() == "leader" for server in ensemble.alive()))
    leader.start()
    ensemble.settle()


def all_killed(ensemble: Ensemble) -> None:
    """Kill every server, and start them again."""
    ensemble.stop()
    ensemble.start()


class Shared:
    """A server on which all else has been played, struck for one cell at a time.

    A server dies with the thread that started it, so all starting again is done by one that stays.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.alone = Lock()
        self.hand = stack.enter_context(ThreadPoolExecutor(1))

    def stage(
        self, url: str, strike: Callable[[], object]
    ) -> Callable[[], AbstractContextManager[Disaster]]:
        """A disaster that it may suffer."""

        @contextmanager
        def stage() -> Iterator[Disaster]:
            with self.alone:
                yield Disaster(url, lambda: self.hand.submit(strike).result())

        return stage


def places(stack: ExitStack, kinds: list[str]) -> list[Place]:
    """A place of each kind, on servers that end with *stack*."""
    return [MAKERS[kind](stack) for kind in kinds]


def _sqlite(stack: ExitStack) -> Place:
    return Place("sqlite:///")


def _redis(stack: ExitStack) -> Place:
    server = stack.enter_context(Redis())
    return Place(server.url, {"failover": failing_redis, "restart": restarting_redis})


def _redlock(stack: ExitStack) -> Place:
    urls = [stack.enter_context(Redis()).url for _ in range(3)]
    return Place(",".join(urls), {"failover": failing_redlock, "restart": restarting_redlock})


def _zookeeper(stack: ExitStack) -> Place:
    shared, ensemble = Shared(stack), stack.enter_context(Ensemble())
    url = f"zookeeper://{ensemble.hosts}"
    failover = shared.stage(url, lambda: deposed(ensemble))
    restart = shared.stage(url, lambda: all_killed(ensemble))
    return Place(url, {"failover": failover, "restart": restart})


def _postgresql(stack: ExitStack) -> Place:
    shared, server = Shared(stack), stack.enter_context(Postgres())
    restart = shared.stage(server.url, lambda: killed(server))
    return Place(server.url, {"failover": failing_postgres, "restart": restart})


def _mysql(stack: ExitStack) -> Place:
    # What is committed is with the kernel, and survives the server; no test cuts the power.
    shared = Shared(stack)
    server = stack.enter_context(MariaDB(**{"innodb-flush-log-at-trx-commit": "2"}))
    restart = shared.stage(server.url, lambda: killed(server))
    return Place(server.url, {"failover": failing_mariadb, "restart": restart})


MAKERS: dict[str, Callable[[ExitStack], Place]] = {
    "sqlite": _sqlite,
    "redis": _redis,
    "redlock": _redlock,
    "zookeeper": _zookeeper,
    "postgresql": _postgresql,
    "mysql": _mysql,
}
