"""How many requests the document stores need: the table of `docs/internals/document.md`.

Counted on the servers, and in memory: on stores that report changes or not, and send the present
document with a conflict or not.
"""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from testkit.documents import ROOMS, Memory
from testkit.servers.process import eventually

import leaselock
from leaselock._backends import SCHEMES

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).resolve().parents[3] / "docs" / "internals" / "document.md"
# The adapters, and what in memory is like them: Kubernetes also needs the object that it replaces.
ADAPTERS = {
    "etcd": ("leaselock._backends.etcd.store", "EtcdStore"),
    "kubernetes": ("leaselock._backends.kubernetes.store", "KubernetesStore"),
    "dynamodb": ("leaselock._backends.dynamodb.table", "Table"),
    "s3": ("leaselock._backends.s3.bucket", "Bucket"),
}
LIKE = {"etcd": "", "dynamodb": "watch=no", "s3": "watch=no&current=no"}
# The columns of the table, in its order.
COLUMNS = tuple(ADAPTERS)
TRIES = 10
LONG = 300.0
HAND_OFF = "hand-off to a waiter, and its release"


class Requests(NamedTuple):
    """Reads and writes, among them those that met a conflict."""

    reads: int
    writes: int


class Counter:
    """Counts the calls of an adapter."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def count(self, monkeypatch: pytest.MonkeyPatch, adapter: type) -> None:
        """Begin."""
        for method in ("get", "put"):
            monkeypatch.setattr(adapter, method, self._counted(getattr(adapter, method)))

    def _counted(self, method: Any) -> Any:
        def counted(*words: Any, **named: Any) -> Any:
            self.calls.append(method.__name__)
            return method(*words, **named)

        return counted

    def taken(self) -> Requests:
        """Those since the last time."""
        calls, self.calls = self.calls, []
        return Requests(calls.count("get"), calls.count("put"))


def rows() -> dict[str, list[Requests]]:
    """The table: the figures of each row, by the words in its first column."""
    found = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        figures = [re.fullmatch(r"(\d+) \+ (\d+)", cell) for cell in cells[1:]]
        if line.startswith("|") and len(cells) == len(COLUMNS) + 1 and all(figures):
            found[cells[0]] = [Requests(int(m[1]), int(m[2])) for m in figures if m]
    return found


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a store in memory, without options."""
    monkeypatch.setitem(SCHEMES, "documents", "testkit.documents:MEMORY")
    yield f"documents://{uuid.uuid4().hex}"
    ROOMS.clear()


def on_server(store: str, request: pytest.FixtureRequest) -> str:
    """The URL of an empty place on the real server."""
    server: Any = request.getfixturevalue("object_store" if store == "s3" else store)
    if store == "kubernetes":
        found: str = server.url(server.namespace())
    elif store == "etcd":
        found = server.url(uuid.uuid4().hex)
    else:
        found = server.url(f"requests-{uuid.uuid4().hex[:8]}")
    return found


def measured(url: str, counter: Counter) -> dict[str, Requests]:
    """What each row of the table costs."""
    found = {}
    with (
        leaselock.Client(url, op_timeout=60) as client,
        leaselock.Client(url, op_timeout=60) as other,
    ):
        lock, theirs = client.lock("a", lease=LONG), other.lock("a", lease=LONG)

        def pair(lock: leaselock.Lock) -> Requests:
            counter.taken()
            lock.acquire(timeout=60).release()
            return counter.taken()

        pair(client.lock("b", lease=LONG))  # the first connection, and what is asked once
        pair(other.lock("b", lease=LONG))
        found["acquire and release, the first time"] = pair(lock)
        found["acquire and release again"] = pair(lock)
        found["the first time, a lock that others have used"] = pair(theirs)
        found["again, after another client"] = pair(lock)
        lease = lock.acquire(timeout=60)
        counter.taken()
        lease.extend(LONG)
        found["renewal"] = counter.taken()
        lease.release()
        found[HAND_OFF] = min(
            (hand_off(lock, theirs, counter) for _ in range(TRIES)), key=lambda it: it[::-1]
        )
    return found


def hand_off(lock: leaselock.Lock, theirs: leaselock.Lock, counter: Counter) -> Requests:
    """A release while one waits, until that one has released, too. How often it looks, where there
    are no watches, is left to time: the fewest requests count.
    """
    lease = lock.acquire(timeout=60)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(theirs.acquire, timeout=60)
        eventually(lambda: len(lock.waiters()) == 1, 60)
        counter.taken()
        lease.release()
        waiting.result().release()
        return counter.taken()


def check(url: str, store: str, counter: Counter) -> None:
    """Compare with the column of the table."""
    column = COLUMNS.index(store)
    table = {name: figures[column] for name, figures in rows().items()}
    found = measured(url, counter)
    # A watch that reports the release early enough saves the read of the waiter.
    handed, most = found.pop(HAND_OFF), table.pop(HAND_OFF)
    assert found == table
    assert (handed.writes, handed.reads <= most.reads) == (most.writes, True)


@pytest.mark.parametrize("store", LIKE)
def test_requests_in_memory(store: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter()
    counter.count(monkeypatch, Memory)
    check(f"{memory}?{LIKE[store]}", store, counter)


@pytest.mark.heavy
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:an object store answers:UserWarning")
@pytest.mark.parametrize("store", COLUMNS)
def test_requests_on_servers(
    store: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    url, counter = on_server(store, request), Counter()
    with leaselock.Client(url, op_timeout=60) as client:
        client.setup()
    module, adapter = ADAPTERS[store]
    counter.count(monkeypatch, getattr(import_module(module), adapter))
    check(url, store, counter)
