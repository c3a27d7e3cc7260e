"""leaselock on etcd and on DynamoDBLocal, beside bare compare-and-sets and other locks.

The servers are private. etcd does not call fsync, so the disk is not measured; DynamoDBLocal is
Amazon's engine for tests, and says nothing about the speed of the service.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from botocore.client import BaseClient
from testkit.servers.dynamodb import DynamoDB
from testkit.servers.etcd import Etcd
from testkit.servers.process import eventually

import leaselock
from benchmarks.contestants import ON_DYNAMODB, ON_ETCD, contestant, present
from benchmarks.contestants import TITLES as CONTESTANTS
from benchmarks.sampling import SampleSetup, ratio_goal, sample_contestants, table_of
from benchmarks.sampling import pairs as sample_pairs
from benchmarks.tables import Goal, Table
from benchmarks.workloads.contention import ContentionSetup, contend, waits
from benchmarks.workloads.contention import table_of as contention_table
from leaselock._backends.document.adapter import Conflict
from leaselock._backends.dynamodb.table import Table as DynamoDBTable
from leaselock._backends.etcd.store import EtcdStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.scale import Scale

# In the order of the stores: a pair x two bare writes, and the waits of 8 processes x ideal.
MAX_PAIR = {"etcd": 1.2, "dynamodb": 1.15}
MAX_P99 = {"etcd": 1.1, "dynamodb": 1.5}
MIN_JAIN = 0.99
HOLD = 0.05
# Seconds of contention for one second of a short hold: a turn of 8 processes takes 0.4 s.
LONGER = 10
CLIENTS, TIMEOUT = 4, 120.0
# Seconds for which a client waits before the lock is released, where requests are counted.
WAITED = 1.0
FIGURES = ("written", "conflicts", "reads", "seconds")
STORES = {"etcd": EtcdStore, "dynamodb": DynamoDBTable}
NAMES = {"etcd": ON_ETCD, "dynamodb": ON_DYNAMODB}
TITLES = {"etcd": "etcd", "dynamodb": "DynamoDBLocal"}


def run(scale: Scale) -> Iterator[Table]:
    """Measure on etcd and on DynamoDBLocal."""
    with ExitStack() as stack:
        etcd = stack.enter_context(Etcd())
        dynamodb = stack.enter_context(DynamoDB())
        urls = {"etcd": etcd.url("bench"), "dynamodb": dynamodb.url("bench", poll="0.02")}
        with leaselock.Client(urls["dynamodb"]) as client:
            client.setup()
        for store, url in urls.items():
            yield pair(scale, store, url)
            yield from contention(scale, store, url)
        yield handoffs(scale, urls)
        yield requests(scale, urls["dynamodb"])


def announce(url: str, folder: Path) -> None:
    """Write the URL of the store for the contestants."""
    Path(folder, "url").write_text(url)
    Path(folder, "counter").write_bytes(bytes(8))


def pair(scale: Scale, store: str, url: str) -> Table:
    """Measure a free lock with one thread."""
    names = NAMES[store]
    samples = sample_contestants(names, scale, SampleSetup(partial(announce, url)))
    bare = f"bare-{store}"
    goals = ratio_goal(samples, "a pair x two bare writes", store, bare, MAX_PAIR[store])
    title = f"{TITLES[store]}, pair: acquire and release a free lock, one thread"
    return table_of(title, samples, bare)._replace(goals=goals)


def contention(scale: Scale, store: str, url: str) -> list[Table]:
    """Measure processes that each hold the lock for a while."""
    names = [name for name in present(NAMES[store]) if contestant(name).waits]
    longer = scale._replace(contention_seconds=scale.contention_seconds * LONGER)
    setup = ContentionSetup(names, store, partial(announce, url))
    tables = []
    for hold, rounds in contend(setup, longer, scale.contenders, (HOLD,)).items():
        table = contention_table(rounds, scale.contenders, hold, store)
        ours = table.data["contestants"][store]
        # Without hand-offs in time, one process has the lock more often than another.
        goals = [*waits(ours, MAX_P99[store], 2 * MAX_P99[store])]
        goals.append(Goal("0.99 / Jain", MIN_JAIN / ours["jain"], 1.0))
        title = f"{TITLES[store]}, {table.title}"
        tables.append(table._replace(title=title, goals=goals))
    return tables


def handoffs(scale: Scale, urls: dict[str, str]) -> Table:
    """Count what the hand-offs of many waiters write and read."""
    most = 100 if 100 in scale.waiters else min(scale.waiters)
    rows, data = [], {}
    for store, url in urls.items():
        found = _handoffs(url, STORES[store], most)
        each = {what: found.get(what, 0) / most for what in FIGURES}
        data[store] = each
        cells = [f"{each[what]:.1f}" for what in FIGURES[:-1]]
        rows.append([TITLES[store], *cells, f"{each['seconds'] * 1e3:.1f}"])
    title = f"documents, {most} waiters of {CLIENTS} clients: requests for each hand-off"
    head = ["store", "writes", "conflicts", "reads", "ms"]
    note = "all clients are threads of one process, which share its interpreter"
    return Table(title, head, rows, {"stores": data, "waiters": most}, [], [note])


@contextmanager
def store_requests(store: type[Any]) -> Iterator[Counter[str]]:
    """Count the reads, writes and conflicts of all clients of this process."""
    counts: Counter[str] = Counter()
    mutex, put, get = Lock(), store.put, store.get

    def counted_put(self: Any, *words: Any) -> Any:
        reply = put(self, *words)
        with mutex:
            counts["conflicts" if isinstance(reply, Conflict) else "written"] += 1
        return reply

    def counted_get(self: Any, *words: Any) -> Any:
        with mutex:
            counts["reads"] += 1
        return get(self, *words)

    with patch.object(store, "put", counted_put), patch.object(store, "get", counted_get):
        yield counts


@contextmanager
def service_requests() -> Iterator[Counter[str]]:
    """Count what boto3 sends in this process, by operation."""
    counts: Counter[str] = Counter()
    mutex, send = Lock(), BaseClient._make_api_call

    def counted(self: Any, operation: str, words: Any) -> Any:
        with mutex:
            counts[operation] += 1
        return send(self, operation, words)

    with patch.object(BaseClient, "_make_api_call", counted):
        yield counts


def _handoffs(url: str, store: type[Any], count: int) -> dict[str, float]:
    """Release a lock that many wait for, and let each of them acquire and release it."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(leaselock.Client(url, op_timeout=30.0)) for _ in range(CLIENTS)
        ]
        held = clients[0].lock("many", lease=60.0).acquire(timeout=TIMEOUT)

        def wait(client: leaselock.Client) -> None:
            with client.lock("many", lease=60.0, timeout=TIMEOUT):
                pass

        threads = [Thread(target=wait, args=(clients[n % CLIENTS],)) for n in range(count)]
        for thread in threads:
            thread.start()
        watched = clients[0].lock("many")
        eventually(lambda: len(watched.waiters()) == count, TIMEOUT)
        with store_requests(store) as requests:
            began = time.perf_counter()
            held.release()
            for thread in threads:
                thread.join()
            return {**requests, "seconds": time.perf_counter() - began}


def requests(scale: Scale, url: str) -> Table:
    """Count the requests of a pair, and of a hand-off between two clients, on DynamoDBLocal."""
    rows, data = [], {}
    with tempfile.TemporaryDirectory() as folder:
        announce(url, Path(folder))
        for name in [name for name in present(ON_DYNAMODB) if contestant(name).waits]:
            with ExitStack() as stack:
                one, other = (
                    stack.enter_context(closing(contestant(name)(Path(folder)))) for _ in range(2)
                )
                sample_pairs(one, 2)
                with service_requests() as alone:
                    sample_pairs(one, scale.rounds)
                one.acquire()
                waiting = Thread(target=sample_pairs, args=(other, 1))
                with service_requests() as together:
                    waiting.start()
                    time.sleep(WAITED)
                    one.release()
                    waiting.join()
            pair, handoff = alone.total() / scale.rounds, together.total()
            data[name] = {"pair": pair, "handoff": handoff}
            rows.append([CONTESTANTS[name], f"{pair:.1f}", f"{handoff}"])
    title = "DynamoDBLocal: requests to the service"
    head = ["contestant", "acquire and release a free lock", f"wait {WAITED:g} s, and be next"]
    note = "the second column has the requests of both clients, up to the release by the second"
    return Table(title, head, rows, {"contestants": data}, [], [note])
