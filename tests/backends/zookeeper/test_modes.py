"""Read/write locks and semaphores in ZooKeeper: what is shown, refused and left behind."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.servers.ensembles import fresh
from testkit.servers.process import eventually

import leaselock
from leaselock._backends.zookeeper.connection import BlockingConnection
from leaselock._backends.zookeeper.data import written
from leaselock._backends.zookeeper.lock_state import lock_state
from leaselock._backends.zookeeper.queue import QueueBackend
from leaselock._backends.zookeeper.queue_order import KAZOO, entry
from leaselock._backends.zookeeper.requests import Delete, Node
from leaselock._backends.zookeeper.url import parsed
from leaselock._core.contract.backend import Claim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.zookeeper import Ensemble

    from leaselock._backends.zookeeper.lock_state import Contending

TRIALS = 20
CLAIM = Claim("a", "c:1", "c", 30.0, '{"label": null}', 0.0)


def node(name: str, created: int, **numbers: int) -> Contending:
    """A contender, and its node."""
    found = entry(name)
    assert found is not None
    return found, Node(f"/a/{name}", created, 7, 0.0, written(CLAIM, "c-1", **numbers))


QUEUE = [
    node("a__rlock__0000000001", 11),
    node("b.update__rlock__0000000002", 12),
    node("c__rlock__0000000003", 13),
]
UPGRADE = node("b__lock__0000000002", 20)
LATE = node("d__rlock__0000000004", 21)
WAITING = node("e__rlock__0000000005", 15, waits_for=20)


@contextlib.contextmanager
def connected(ensemble: Ensemble) -> Iterator[Any]:
    """A client of kazoo."""
    client = KazooClient(ensemble.hosts)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def shown(*queue: Contending) -> list[tuple[str, int]]:
    state = lock_state("a", queue)
    return [(hold.record.mode, hold.record.token) for hold in state.holds]


def test_an_upgrade_is_complete_when_the_readers_before_it_are_gone() -> None:
    first, update, reader = QUEUE
    assert shown(*QUEUE) == [("shared", 11), ("update", 12), ("shared", 13)]
    upgrading = [("shared", 11), ("upgrading", 12), ("shared", 13)]
    assert shown(first, update, UPGRADE, reader, LATE, WAITING) == upgrading
    assert shown(update, UPGRADE, reader, LATE) == upgrading[1:]
    assert shown(update, UPGRADE, LATE, WAITING) == [("exclusive", 20)]
    waiting = lock_state("a", [update, UPGRADE, LATE, WAITING]).waiting
    assert [claim.mode for claim in waiting] == ["shared", "shared"]


def test_a_downgraded_hold_keeps_its_token() -> None:
    assert shown(node("a__rlock__0000000001", 30, token=11)) == [("shared", 11)]


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
@pytest.mark.parametrize("option", ["protocol=single", "names=curator"])
def test_what_is_not_offered_is_refused_without_a_request(option: str) -> None:
    client = leaselock.Client(f"zookeeper://localhost:1/?{option}")
    with pytest.raises(ValueError, match="ZooKeeper by queue with kazoo's names"):
        client.semaphore("a", permits=2)
    if option == "names=curator":
        with pytest.raises(ValueError, match="update"):
            _ = client.rwlock("a").update
    else:
        with pytest.raises(ValueError, match="ZooKeeper by queue"):
            client.rwlock("a")


def test_the_queue_of_a_semaphore_is_no_lock(ensemble: Ensemble) -> None:
    """It is not listed, and is removed with the semaphore when nothing uses that."""
    with leaselock.Client(fresh(ensemble)) as client:
        with client.semaphore("gpus", permits=2):
            assert [info.name for info in client.locks()] == ["gpus"]
            # The queue is empty.
            assert client.gc() == 1
        assert client.gc() == 1
        with pytest.raises(ValueError, match="queue of the semaphore 'gpus'"):
            client.lock("gpus-__lock__")
        with client.semaphore("gpus", permits=3):
            pass


def test_tries_at_once_get_all_free_permits(ensemble: Ensemble) -> None:
    """Three clients and two permits, also where the number changes: two are granted."""
    url = fresh(ensemble)
    clients = [leaselock.Client(url) for _ in range(3)]
    for client in clients:
        with client.lock("warm"):
            pass
    barrier, found = threading.Barrier(3), list[leaselock.Lease | None]()

    def attempt(client: leaselock.Client, name: str, permits: int) -> None:
        barrier.wait()
        found.append(client.semaphore(name, permits=permits).try_acquire())

    try:
        for number in range(TRIALS):
            found.clear()
            words = (f"s{number // 2}", 2 - number % 2)
            threads = [threading.Thread(target=attempt, args=(c, *words)) for c in clients]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            leases = [lease for lease in found if lease is not None]
            assert (len(found), len(leases)) == (3, words[1])
            for lease in leases:
                lease.release()
    finally:
        for client in clients:
            client.close()


def test_a_semaphore_does_not_overwrite_data_of_another_program(ensemble: Ensemble) -> None:
    """An upgrade of a lock, which writes the node again, keeps it."""
    url = fresh(ensemble)
    with leaselock.Client(url) as client, connected(ensemble) as kazoo:
        with client.lock("a"):
            backend: Any = client._core.context(None).registry.backend
        path = f"{backend.root}/a"
        kazoo.set(path, b'{"theirs": 1}')
        semaphore = client.semaphore("a", permits=2)
        for timeout in (0, 5):
            with pytest.raises(leaselock.NotApplied, match="data of another program"):
                semaphore.acquire(timeout=timeout)
        with pytest.raises(leaselock.NotApplied, match="data of another program"):
            semaphore.resize(3)
        with client.rwlock("a").update as lease:
            assert lease.upgrade(timeout=5)
        assert kazoo.get(path)[0] == b'{"theirs": 1}'
        assert client.lock("a").waiters() == []


def test_a_context_that_is_never_asked_keeps_no_events() -> None:
    """Of a client that uses another protocol, or another event loop, of the same connection."""
    connection = BlockingConnection(parsed("zookeeper://localhost:1/"), lambda: 0.0)
    backend = QueueBackend(connection, "/", KAZOO, lambda: 0.0)
    for _ in range(3):
        connection._state_changed(connection.client, "CONNECTED")
    assert backend.mailbox.take() == ()


def test_a_writer_that_an_upgrade_has_overtaken_gets_a_greater_token(ensemble: Ensemble) -> None:
    url = fresh(ensemble)
    with leaselock.Client(url) as client, leaselock.Client(url) as other:
        grants: list[int] = []
        with client.rwlock("a").update as lease:
            waiting = other.rwlock("a").write

            def write() -> None:
                with waiting as theirs:
                    grants.append(theirs.token)

            thread = threading.Thread(target=write)
            thread.start()
            eventually(lambda: len(waiting.waiters()) == 1)
            assert lease.upgrade(timeout=5.0)
            upgraded = lease.token
        thread.join()
        assert grants[0] > upgraded


@pytest.mark.parametrize("then", ["acquire", "upgrade"])
def test_an_interrupted_downgrade_is_not_forgotten(ensemble: Ensemble, then: str) -> None:
    """It was applied: to write again, the holder must wait for readers, and later ones for it."""
    url = fresh(ensemble)
    with leaselock.Client(url) as client, leaselock.Client(url) as other:
        sides, readers = client.rwlock("a"), other.rwlock("a")
        with sides.update as update:
            writing = sides.write.acquire()
            backend: Any = client._core.context(None).registry.backend
            batch = backend.batch

            async def applied(until: float, *requests: Any, **terms: Any) -> Any:
                replies = await batch(until, *requests, **terms)
                if any(isinstance(request, Delete) for request in requests):
                    raise KeyboardInterrupt
                return replies

            backend.batch = applied
            with pytest.raises(KeyboardInterrupt):
                writing.release()
            backend.batch = batch
            if then == "acquire":
                with sides.write as again:
                    assert readers.read.try_acquire() is None
                    again.ensure()
            else:
                assert update.upgrade(timeout=30)
                assert readers.read.try_acquire() is None
            update.ensure()
