"""python -m verification.chaos.crashed [--holders N] [STORE ...]

A process acquires many locks, each of a name of its own, and is killed. When the leases have ended,
`gc` runs with the default `op_timeout`, and what is left in the private store is counted: names,
keys, nodes, rows or documents. The tokens of the names are kept for a second (`?token_ttl=1`),
instead of a week. The protocol `document` keeps what a crashed holder has left for another day,
which counts as over here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.servers.cluster import Cluster
from testkit.servers.databases import TABLES
from testkit.servers.dynamodb import DynamoDB
from testkit.servers.ensembles import fresh
from testkit.servers.etcd import Etcd
from testkit.servers.kubernetes import KubeApiserver
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from testkit.servers.s3 import ObjectStore
from testkit.servers.zookeeper import Ensemble

import leaselock
from leaselock._backends.document import engine as document
from leaselock._backends.memory.store import database_of
from leaselock._backends.zookeeper.url import parsed

if TYPE_CHECKING:
    from collections.abc import Callable

HOLDERS = 10_000
# Seconds.
LEASE = 10.0
# The session of ZooKeeper, in seconds.
SESSION = 10.0
# The leases in memory, in seconds.
SHORT = 3.0
# Those of documents, in seconds: renewing thousands of them would keep a store from all else.
OF_DOCUMENTS = 60.0
# The longest time from the first `gc` until all holds have ended and nothing is left of them.
PATIENCE = 120.0
CRASH = """
import concurrent.futures, logging, os, signal, sys, leaselock
url, holders, lease, renew, threads = sys.argv[1], *map(float, sys.argv[2:])
logging.disable()  # of leases that end before the last one is acquired
client = leaselock.Client(url, op_timeout=60)
def acquire(number):
    return client.lock(f"crashed {number}", lease=lease, renew=bool(renew)).acquire()
with concurrent.futures.ThreadPoolExecutor(int(threads)) as pool:
    leases = list(pool.map(acquire, range(int(holders))))
    print(len(leases), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
COUNT_ROWS = """
import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone()[0])
"""
ROWS = "SELECT " + " + ".join(f"(SELECT count(*) FROM {table})" for table in ("lock", "hold"))


class Place(NamedTuple):
    """A private store."""

    url: str
    records: Callable[[], int]
    """How many it has."""
    lease: float = LEASE
    renew: bool = True
    threads: int = 1
    """How many acquire."""
    ended: float = LEASE
    """Seconds after the crash until the holds have ended."""


class Figures(NamedTuple):
    """What one store has shown."""

    store: str
    holders: int
    before: int
    runs: int
    seconds: float
    removed: int
    left: int

    def __str__(self) -> str:
        return (
            f"| {self.store} | {self.holders} | {self.before} | {self.runs} "
            f"| {self.seconds:.1f} s | {self.removed} | {self.left} |"
        )


def crash(place: Place, holders: int) -> None:
    """Acquire that many locks in a process that is killed."""
    words = (holders, place.lease, int(place.renew), place.threads)
    command = [sys.executable, "-c", CRASH, place.url, *map(str, words)]
    shown = subprocess.run(command, env=os.environ, stdout=subprocess.PIPE, check=False).stdout
    assert int(shown) == holders, shown


def collected(store: str, place: Place, holders: int) -> Figures:
    """Collect garbage when the leases have ended, until nothing is left, or until PATIENCE is over:
    a store may take some seconds more to end a session, or to forget a counter.
    """
    died, before = time.monotonic(), place.records()
    eventually(lambda: time.monotonic() > died + place.ended, PATIENCE)
    found, runs, seconds = 0, 0, 0.0
    with leaselock.Client(place.url) as client:

        def clean() -> bool:
            nonlocal found, runs, seconds
            began = time.monotonic()
            found += client.gc()
            runs, seconds = runs + 1, seconds + time.monotonic() - began
            return not place.records()

        deadline = time.monotonic() + PATIENCE
        eventually(lambda: clean() or time.monotonic() > deadline, PATIENCE + 60)
    return Figures(store, holders, before, runs, seconds, found, place.records())


def memory(holders: int) -> Figures:
    """A store ends with its process: here the holders stop renewing, and release nothing."""
    name = uuid.uuid4().hex
    entries = database_of(name, time.monotonic).table.entries
    place = Place(f"memory://{name}", lambda: len(entries), ended=SHORT)
    with leaselock.Client(place.url) as client:
        for number in range(holders):
            client.lock(f"crashed {number}", lease=SHORT, renew=False).acquire()
        return collected("memory", place, holders)


def sqlite(stack: ExitStack) -> Place:
    """The rows of names and holds."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="crashed-"))
    path = f"{folder}/locks.db"

    def rows() -> int:
        # In another process: closing the file in this one would release its locks.
        command = [sys.executable, "-c", COUNT_ROWS, path, ROWS]
        return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    return Place(f"sqlite:///{path}?token_ttl=1", rows)


def redis(stack: ExitStack, protocol: str = "hash") -> Place:
    """Every key that belongs to a lock: holds, queues and counters of tokens."""
    server = stack.enter_context(Redis())
    url = f"{server.url}?token_ttl=1&protocol={protocol}"
    return Place(url, lambda: len(server.stored_keys()))


def redis_cluster(stack: ExitStack) -> Place:
    """The same on all masters."""
    nodes = stack.enter_context(Cluster())
    url = f"{nodes.url}?token_ttl=1"
    return Place(url, lambda: sum(len(server.stored_keys()) for server in nodes.masters()))


def redlock(stack: ExitStack) -> Place:
    """The same on three masters."""
    servers = [stack.enter_context(Redis()) for _ in range(3)]
    url = ",".join(f"{server.url}?token_ttl=1" for server in servers)
    return Place(url, lambda: sum(len(server.stored_keys()) for server in servers))


def zookeeper(stack: ExitStack) -> Place:
    """Every node below the root, but for the layout marker."""
    ensemble = stack.enter_context(Ensemble())
    url = fresh(ensemble, timeout=SESSION)
    root = parsed(url).root
    witness: Any = KazooClient(ensemble.hosts)
    witness.start()
    stack.callback(witness.close)
    stack.callback(witness.stop)

    def nodes() -> int:
        witness.sync(root)
        names = [name for name in witness.get_children(root) if name != "%layout"]
        found = [witness.get_async(f"{root}/{name}") for name in names]
        return len(names) + sum(int(one.get()[1].children_count) for one in found)

    # A hold ends with its session, however long its lease is. Renewing thousands of leases reads as
    # many nodes, which keeps a busy machine from all else.
    return Place(url, nodes, lease=3600.0, renew=False, ended=SESSION)


def of_documents(url: str, records: Callable[[], int]) -> Place:
    """A store of the protocol `document`."""
    return Place(url, records, OF_DOCUMENTS, renew=False, threads=8, ended=OF_DOCUMENTS)


def etcd(stack: ExitStack) -> Place:
    """The keys below the prefix."""
    server = stack.enter_context(Etcd())

    def keys() -> int:
        found = server.control("get", "crashed/", "--prefix=true", "--limit=1")
        return int(found.get("count", 0))

    return of_documents(server.url("crashed", token_ttl=1), keys)


def dynamodb(stack: ExitStack) -> Place:
    """The items of the table."""
    server = stack.enter_context(DynamoDB())
    url = server.url("crashed", token_ttl="1")
    with leaselock.Client(url) as client:
        client.setup()
    asked = server.client()
    stack.callback(asked.close)

    def items() -> int:
        pages = asked.get_paginator("scan").paginate(TableName="crashed", Select="COUNT")
        return sum(int(page["Count"]) for page in pages)

    return of_documents(url, items)


def s3(stack: ExitStack) -> Place:
    """The objects of the bucket."""
    server = stack.enter_context(ObjectStore())
    url = server.url("crashed", token_ttl="1")
    with leaselock.Client(url) as client:
        client.setup()
    bucket = server.resource().Bucket("crashed")
    return of_documents(url, lambda: sum(1 for _ in bucket.objects.all()))


def kubernetes(stack: ExitStack) -> Place:
    """The Leases of the namespace."""
    server = stack.enter_context(KubeApiserver())
    namespace = server.namespace()
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return of_documents(
        server.url(namespace, token_ttl=1), lambda: len(server.must("GET", path)["items"])
    )


def database(kind: Callable[[], Postgres | MariaDB], schema: str) -> Callable[[ExitStack], Place]:
    """The rows of all tables but that of the facts."""

    def made(stack: ExitStack) -> Place:
        server = kind()
        stack.enter_context(server)
        with leaselock.Client(server.url) as client:
            client.setup()
        counts = (f"(SELECT count(*) FROM {schema}leaselock_{table})" for table in TABLES)
        query = f"SELECT {' + '.join(counts)}"
        return Place(f"{server.url}?token_ttl=1", lambda: int(server.query(query)[0][0]))

    return made


PLACES: dict[str, Callable[[ExitStack], Place]] = {
    "sqlite": sqlite,
    "redis": redis,
    "redis-string": partial(redis, protocol="string"),
    "redis-cluster": redis_cluster,
    "redlock-3": redlock,
    "zookeeper": zookeeper,
    "etcd": etcd,
    "dynamodb": dynamodb,
    "s3": s3,
    "kubernetes": kubernetes,
    "postgres": database(Postgres, ""),
    "mariadb": database(MariaDB, "locks."),
}
STORES = ("memory", *PLACES)


def play(store: str, holders: int) -> Figures:
    """Crash on one store."""
    if store == "memory":
        return memory(holders)
    with ExitStack() as stack:
        place = PLACES[store](stack)
        crash(place, holders)
        with patch.object(document, "ABANDONED", 0.0):
            return collected(store, place, holders)


def main(arguments: list[str] | None = None) -> int:
    """Run, and print a table; return 1 if anything is left."""
    parser = argparse.ArgumentParser(
        prog="python -m verification.chaos.crashed", description=__doc__
    )
    parser.add_argument("--holders", type=int, default=HOLDERS)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    words: Any = parser.parse_args(arguments)
    print("| store | crashed holders | records before | runs of gc | time | removed | left |")
    print("| - | - | - | - | - | - | - |")
    failed = False
    for name in words.stores or STORES:
        figures = play(name, words.holders)
        print(figures, flush=True)
        failed = failed or figures.left > 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
