"""A free lock and a hand-off on each server store, by the way to the server: on this machine,
through a proxy that makes a round trip 1 ms longer, and with TLS.

The servers do not call fsync. A hand-off goes from one client to another one that waits.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from testkit.proxy import Proxy
from testkit.servers.etcd import Etcd
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres, owned_folder
from testkit.servers.process import HERE, eventually
from testkit.servers.redis import Redis
from testkit.servers.tls import Certificates
from testkit.servers.zookeeper import Ensemble

import leaselock
from benchmarks.figures import spread
from benchmarks.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from benchmarks.scale import Scale

NEAR, FAR, TLS = "same machine", "round trip + 1 ms", "TLS"
WAYS = (NEAR, FAR, TLS)
# Each direction; the proxy and the switches of its threads add a tenth of a millisecond.
DELAY = 0.0005
PORT = re.compile(r"(127\.0\.0\.1:)(\d+)")
WARM_UP = 5


class Figures(NamedTuple):
    """Medians in seconds."""

    pair: float
    handoff: float


def run(scale: Scale) -> list[Table]:
    """Measure each store by each way."""
    found: dict[str, dict[str, Figures]] = {}
    for store, servers in SERVERS.items():
        found[store] = {}
        with ExitStack() as stack:
            urls = {way: stack.enter_context(opened) for way, opened in servers().items()}
            if port := PORT.search(urls[NEAR]):
                proxy = stack.enter_context(Proxy(int(port[2])))
                proxy.delay = DELAY
                urls[FAR] = PORT.sub(rf"\g<1>{proxy.port}", urls[NEAR])
            for way, url in urls.items():
                found[store][way] = measured(url, scale)
    rows = [
        [store, *(_shown(ways[way]) if way in ways else "" for way in WAYS)]
        for store, ways in found.items()
    ]
    plain = {
        store: {way: figures._asdict() for way, figures in ways.items()}
        for store, ways in found.items()
    }
    title = "network: a free lock; a hand-off to a waiting client, ms"
    return [Table(title, ["store", *WAYS], rows, {"stores": plain, "ways": list(WAYS)})]


def _shown(figures: Figures) -> str:
    return f"{figures.pair * 1e3:.2f}; {figures.handoff * 1e3:.2f}"


def measured(url: str, scale: Scale) -> Figures:
    """Measure with two clients of one process."""
    count = max(10, 10 * scale.rounds)
    with leaselock.Client(url) as first, leaselock.Client(url) as second:
        lock = first.lock("pair")
        pairs = [_seconds(lambda: lock.acquire().release()) for _ in range(WARM_UP + count)]
        handoffs = [handoff(first, second) for _ in range(WARM_UP + count)]
    return Figures(spread(pairs[WARM_UP:]).median, spread(handoffs[WARM_UP:]).median)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def handoff(first: leaselock.Client, second: leaselock.Client) -> float:
    """Return the time from the release by the first client to the grant of the second."""
    granted: list[float] = []

    def wait() -> None:
        with second.lock("handed off"):
            granted.append(time.perf_counter())

    lease = first.lock("handed off").acquire()
    waiter = threading.Thread(target=wait)
    waiter.start()
    eventually(lambda: first.lock("handed off").waiters())
    time.sleep(0.02)  # until it is blocked
    released = time.perf_counter()
    lease.release()
    waiter.join()
    return granted[0] - released


# --- servers --------------------------------------------------------------------------------------


@contextmanager
def redis(*, tls: bool) -> Iterator[str]:
    """A Redis."""
    with Redis(tls=tls) as server:
        yield server.url


@contextmanager
def etcd(*, tls: bool) -> Iterator[str]:
    """An etcd of one member."""
    with Etcd(tls=tls) as server:
        yield server.url("bench")


@contextmanager
def zookeeper() -> Iterator[str]:
    """A ZooKeeper of one server."""
    with Ensemble(1) as servers:
        yield f"zookeeper://{servers.hosts}/bench"


@contextmanager
def postgres(*, tls: bool) -> Iterator[str]:
    """A PostgreSQL with tables."""
    with ExitStack() as stack:
        settings, options = {}, ""
        if tls:
            made = stack.enter_context(_certificates("postgres"))
            settings = {"ssl": "on", "ssl_cert_file": str(made.cert), "ssl_key_file": str(made.key)}
            options = f"?sslmode=verify-full&sslrootcert={made.ca}"
        server = stack.enter_context(Postgres(HERE, **settings))
        yield _with_tables(f"{server.url}{options}")


@contextmanager
def mariadb(*, tls: bool) -> Iterator[str]:
    """A MariaDB with tables."""
    with ExitStack() as stack:
        settings, options = {}, "?ssl=no"
        if tls:
            made = stack.enter_context(_certificates("mysql"))
            files = {"ssl-ca": made.ca, "ssl-cert": made.cert, "ssl-key": made.key}
            settings = {name: str(path) for name, path in files.items()}
            options = f"?ssl_ca={made.ca}"
        server = stack.enter_context(MariaDB(**settings))
        yield _with_tables(f"{server.url}{options}")


@contextmanager
def _certificates(user: str) -> Iterator[Certificates]:
    folder = owned_folder("bench-tls-", user)
    made = Certificates(folder)
    for file in (made.ca, made.cert, made.key):
        shutil.chown(file, user)
    yield made
    shutil.rmtree(folder)


def _with_tables(url: str) -> str:
    with leaselock.Client(url) as client:
        client.setup()
    return url


SERVERS: dict[str, Callable[[], dict[str, AbstractContextManager[str]]]] = {
    "Redis": lambda: {NEAR: redis(tls=False), TLS: redis(tls=True)},
    "PostgreSQL, `lease`": lambda: {NEAR: postgres(tls=False), TLS: postgres(tls=True)},
    "MariaDB, `lease`": lambda: {NEAR: mariadb(tls=False), TLS: mariadb(tls=True)},
    "ZooKeeper, one server": lambda: {NEAR: zookeeper()},
    "etcd, one member": lambda: {NEAR: etcd(tls=False), TLS: etcd(tls=True)},
}
