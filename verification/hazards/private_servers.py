"""Private servers for the hazard table, and their failures.

After each failure the store serves again at the same address.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING

from testkit.proxy import Proxy
from testkit.servers.dynamodb import DynamoDB
from testkit.servers.etcd import Etcd
from testkit.servers.kubernetes import KubeApiserver
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres
from testkit.servers.process import HOST, eventually
from testkit.servers.redis import Redis
from testkit.servers.s3 import ObjectStore
from testkit.servers.zookeeper import Ensemble
from verification.hazards.replicas import MariaPair, PostgresPair
from verification.hazards.stores import HazardStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


# At most two pairs of databases run at a time.
DATABASE_PAIRS = BoundedSemaphore(2)


class FailingStore:
    """A store at *url*, and a function that makes it fail."""

    def __init__(self, url: str, strike: Callable[[], object]) -> None:
        self.url = url
        self._strike = strike

    def stop_replication(self) -> None:
        """Do nothing: it has no replica."""

    def fail(self) -> None:
        """Fail, and return when the store serves again."""
        self._strike()


class RedisPair:
    """A Redis master and its replica behind one address, which is redirected on failover."""

    def __init__(self, stack: ExitStack) -> None:
        self.master = stack.enter_context(Redis())
        self.stream = stack.enter_context(Proxy(self.master.port))
        self.replica = stack.enter_context(Redis("replicaof", f"{HOST} {self.stream.port}"))
        eventually(lambda: self.replica.info("replication").get("master_link_status") == "up")
        self.address = stack.enter_context(Proxy(self.master.port))
        self.url = f"redis://{HOST}:{self.address.port}/0"

    def stop_replication(self) -> None:
        """Cut the replica off from the master."""
        self.stream.silence()

    def fail(self) -> None:
        """Kill the master, and promote the replica."""
        self.master.kill()
        self.replica.ask("REPLICAOF", "NO", "ONE")
        self.address.target = (HOST, self.replica.port)
        self.address.cut_all()


@contextmanager
def failing_redis() -> Iterator[RedisPair]:
    """A failover to a replica that lags behind."""
    with ExitStack() as stack:
        yield RedisPair(stack)


@contextmanager
def failing_redlock() -> Iterator[RedisPair]:
    """A failover of one of three Redlock masters to a replica that lags behind."""
    with ExitStack() as stack:
        pair = RedisPair(stack)
        others = [stack.enter_context(Redis()).url for _ in range(2)]
        pair.url = ",".join([pair.url, *others])
        yield pair


@contextmanager
def failing_postgres() -> Iterator[PostgresPair]:
    """A failover to a standby that lags behind."""
    with DATABASE_PAIRS, ExitStack() as stack:
        yield PostgresPair(stack)


@contextmanager
def failing_mariadb() -> Iterator[MariaPair]:
    """A failover to a replica that lags behind."""
    with DATABASE_PAIRS, ExitStack() as stack:
        yield MariaPair(stack)


@contextmanager
def restarting_redis() -> Iterator[FailingStore]:
    """A Redis server without persistence, which is killed and restarted."""
    with Redis() as server:
        yield FailingStore(server.url, lambda: kill_and_start(server))


@contextmanager
def restarting_redlock() -> Iterator[FailingStore]:
    """One of three Redlock masters without persistence is killed and restarted."""
    with ExitStack() as stack:
        servers = [stack.enter_context(Redis()) for _ in range(3)]
        yield FailingStore(",".join(s.url for s in servers), lambda: kill_and_start(servers[0]))


def kill_and_start(server: Redis | Postgres | MariaDB) -> None:
    """Kill a server, and start it again."""
    server.kill()
    server.start()


def replace_leader(ensemble: Ensemble) -> None:
    """Kill the leader, wait for a new one, and start the old one again."""
    leader = ensemble.leader()
    leader.running().kill()
    ensemble.wait_until_ready()
    eventually(lambda: any(server.role() == "leader" for server in ensemble.alive()))
    leader.start()
    ensemble.wait_until_ready()


def kill_all(ensemble: Ensemble) -> None:
    """Kill every server, and start them again."""
    ensemble.stop()
    ensemble.start()


def replace_etcd_leader(etcd: Etcd) -> None:
    """Kill the leader, wait for a new one, and start the old one again."""
    etcd.leader().running().kill()
    etcd.wait_until_ready()
    etcd.start()


def kill_all_members(etcd: Etcd) -> None:
    """Kill every member, and start them again."""
    for member in etcd.members:
        member.running().kill()
    etcd.start()


def stop_and_start(server: DynamoDB | ObjectStore) -> None:
    """Kill the server, and start it again."""
    server.stop()
    server.start()


class SharedServer:
    """A server shared by all cells, which fails for one cell at a time.

    A server process ends with the thread that started it, so one permanent thread restarts it.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.alone = Lock()
        self.hand = stack.enter_context(ThreadPoolExecutor(1))

    def failing_store(
        self, url: str, strike: Callable[[], object]
    ) -> Callable[[], AbstractContextManager[FailingStore]]:
        """Return a function that gives one cell exclusive use of the server."""

        @contextmanager
        def failing_store() -> Iterator[FailingStore]:
            with self.alone:
                yield FailingStore(url, lambda: self.hand.submit(strike).result())

        return failing_store


def stores(stack: ExitStack, kinds: list[str]) -> list[HazardStore]:
    """Return a store of each kind, on servers that end with *stack*."""
    return [MAKERS[kind](stack) for kind in kinds]


def _sqlite(stack: ExitStack) -> HazardStore:
    return HazardStore("sqlite:///")


def _redis(stack: ExitStack) -> HazardStore:
    server = stack.enter_context(Redis())
    return HazardStore(server.url, {"failover": failing_redis, "restart": restarting_redis})


def _redlock(stack: ExitStack) -> HazardStore:
    urls = [stack.enter_context(Redis()).url for _ in range(3)]
    return HazardStore(",".join(urls), {"failover": failing_redlock, "restart": restarting_redlock})


def _zookeeper(stack: ExitStack) -> HazardStore:
    shared, ensemble = SharedServer(stack), stack.enter_context(Ensemble())
    url = f"zookeeper://{ensemble.hosts}"
    failover = shared.failing_store(url, lambda: replace_leader(ensemble))
    restart = shared.failing_store(url, lambda: kill_all(ensemble))
    return HazardStore(url, {"failover": failover, "restart": restart})


def _etcd(stack: ExitStack) -> HazardStore:
    shared, server = SharedServer(stack), stack.enter_context(Etcd(3))
    url = server.url()
    failover = shared.failing_store(url, lambda: replace_etcd_leader(server))
    restart = shared.failing_store(url, lambda: kill_all_members(server))
    return HazardStore(url, {"failover": failover, "restart": restart})


def _dynamodb(stack: ExitStack) -> HazardStore:
    shared, server = SharedServer(stack), stack.enter_context(DynamoDB(durable=True))
    url = server.url("hazards")
    restart = shared.failing_store(url, lambda: stop_and_start(server))
    return HazardStore(url, {"restart": restart})


def _s3(stack: ExitStack) -> HazardStore:
    shared, server = SharedServer(stack), stack.enter_context(ObjectStore())
    url = server.url("hazards")
    restart = shared.failing_store(url, lambda: stop_and_start(server))
    return HazardStore(url, {"restart": restart})


def _kubernetes(stack: ExitStack) -> HazardStore:
    shared, server = SharedServer(stack), stack.enter_context(KubeApiserver())
    url = server.url(server.namespace())
    return HazardStore(url, {"restart": shared.failing_store(url, server.restart)})


def _postgresql(stack: ExitStack) -> HazardStore:
    shared, server = SharedServer(stack), stack.enter_context(Postgres())
    restart = shared.failing_store(server.url, lambda: kill_and_start(server))
    return HazardStore(server.url, {"failover": failing_postgres, "restart": restart})


def _mysql(stack: ExitStack) -> HazardStore:
    # Committed data is in the kernel's cache and survives a killed server; no power is cut.
    shared = SharedServer(stack)
    server = stack.enter_context(MariaDB(**{"innodb-flush-log-at-trx-commit": "2"}))
    restart = shared.failing_store(server.url, lambda: kill_and_start(server))
    return HazardStore(server.url, {"failover": failing_mariadb, "restart": restart})


MAKERS: dict[str, Callable[[ExitStack], HazardStore]] = {
    "sqlite": _sqlite,
    "redis": _redis,
    "redlock": _redlock,
    "zookeeper": _zookeeper,
    "etcd": _etcd,
    "dynamodb": _dynamodb,
    "s3": _s3,
    "kubernetes": _kubernetes,
    "postgresql": _postgresql,
    "mysql": _mysql,
}
