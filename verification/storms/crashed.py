"""python -m verification.storms.crashed [--holders N] [STORE ...]

A process acquires many locks, each of a name of its own, and is killed. When the leases have ended,
`gc` runs, and what is left in the private store is counted: names, keys, nodes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.servers.ensembles import fresh
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from testkit.servers.zookeeper import Ensemble

import leaselock
from leaselock._backends.memory.store import database_of
from leaselock._backends.zookeeper.url import parsed

if TYPE_CHECKING:
    from collections.abc import Callable

HOLDERS = 10_000
# Seconds, as in CRASH.
LEASE = 2.0
# The longest time until all leases of the killed process have ended, and for one `gc`: on ZooKeeper
# it takes requests for each name.
PATIENCE = 60.0
CRASH = """
import os, signal, sys, leaselock
client = leaselock.Client(sys.argv[1])
holders = range(int(sys.argv[2]))
leases = [client.lock(f"crashed {number}", lease=2.0).acquire() for number in holders]
print(len(leases), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Figures(NamedTuple):
    """What one store has shown."""

    store: str
    holders: int
    before: int
    collected: int
    left: int

    def __str__(self) -> str:
        return f"| {self.store} | {self.holders} | {self.before} | {self.collected} | {self.left} |"


def crash(url: str, holders: int) -> None:
    """Acquire so many locks in a process that is killed."""
    command = [sys.executable, "-c", CRASH, url, str(holders)]
    shown = subprocess.run(command, env=os.environ, stdout=subprocess.PIPE, check=False).stdout
    assert int(shown) == holders, shown


def collected(store: str, url: str, holders: int, count: Callable[[], int]) -> Figures:
    """Collect garbage until nothing is left, or the leases must have ended long ago."""
    before, found = count(), 0
    with leaselock.Client(url, op_timeout=PATIENCE) as client:

        def clean() -> bool:
            nonlocal found
            found += client.gc()
            return not count()

        deadline = time.monotonic() + PATIENCE
        eventually(lambda: clean() or time.monotonic() > deadline, PATIENCE + 10)
    return Figures(store, holders, before, found, count())


def memory(holders: int) -> Figures:
    """A store ends with its process: here the holders stop renewing, and release nothing."""
    name = uuid.uuid4().hex
    entries = database_of(name, time.monotonic).table.entries
    with leaselock.Client(f"memory://{name}") as client:
        locks = [client.lock(f"crashed {n}", lease=LEASE, renew=False) for n in range(holders)]
        leases = [lock.acquire() for lock in locks]
        return collected("memory", f"memory://{name}", len(leases), lambda: len(entries))


def redis(holders: int) -> Figures:
    """Every key: holds, queues and counters of tokens."""
    with Redis() as server:
        url = f"{server.url}?token_ttl=1"
        crash(url, holders)
        return collected("redis", url, holders, lambda: int(server.ask("DBSIZE")))


def zookeeper(holders: int) -> Figures:
    """Every node below the root."""
    with Ensemble() as ensemble:
        url = fresh(ensemble, timeout=2)
        root = parsed(url).root
        witness: Any = KazooClient(ensemble.hosts)
        witness.start()

        def nodes(path: str = root) -> int:
            witness.sync(path)
            names: list[str] = witness.get_children(path)
            return len(names) + sum(
                int(witness.get(f"{path}/{name}")[1].children_count) for name in names
            )

        try:
            crash(url, holders)
            return collected("zookeeper", url, holders, nodes)
        finally:
            witness.stop()
            witness.close()


STORES: dict[str, Callable[[int], Figures]] = {
    "memory": memory,
    "redis": redis,
    "zookeeper": zookeeper,
}


def main(arguments: list[str] | None = None) -> int:
    """Run, and print a table; return 1 if anything is left."""
    parser = argparse.ArgumentParser(
        prog="python -m verification.storms.crashed", description=__doc__
    )
    parser.add_argument("--holders", type=int, default=HOLDERS)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    words: Any = parser.parse_args(arguments)
    print("| store | crashed holders | before gc | collected | left |")
    print("| - | - | - | - | - |")
    failed = False
    for name in words.stores or STORES:
        figures = STORES[name](words.holders)
        print(figures, flush=True)
        failed = failed or figures.left > 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
