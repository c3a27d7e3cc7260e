"""On real servers: watches, sequence numbers, access rights, maintenance, and lifecycle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.servers.ensembles import fresh
from testkit.servers.process import eventually
from tests.backends.zookeeper.zoo import connection_of

import leaselock
from leaselock._backends.zookeeper import connection
from leaselock._backends.zookeeper.connection import BlockingConnection
from leaselock._backends.zookeeper.requests import Batch, Mailbox, Read
from leaselock._backends.zookeeper.url import parsed
from leaselock._core.contract.effects import FOREVER
from leaselock._drivers import system_env
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testkit.servers.zookeeper import Ensemble

# More of them are in the second tier.
WAITERS = [20, pytest.param(100, marks=pytest.mark.heavy)]
FIRED = "zk_sum_node_deleted_watch_count"


@pytest.fixture
def witness(ensemble: Ensemble) -> Iterator[Any]:
    client = KazooClient(ensemble.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def test_a_queue_is_no_longer_than_an_answer_can_be(
    ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiter too many is refused, and leaves no node (hazard I9)."""
    monkeypatch.setattr("leaselock._backends.zookeeper.entering.MOST_WAITERS", 1)
    url = fresh(ensemble)
    with leaselock.Client(url) as one, leaselock.Client(url) as two:
        with one.lock("a") as lease:
            with pytest.raises(NotApplied, match=r"1 wait for 'a' already.*jute\.maxbuffer"):
                two.lock("a").acquire(timeout=60.0)
            assert len(one.lock("a").waiters()) == 0
            lease.ensure()
        with two.lock("a", timeout=60.0):
            pass


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
@pytest.mark.parametrize("waiters", WAITERS)
@pytest.mark.parametrize("protocol", ["queue", "single"])
def test_how_many_waiters_a_release_wakes(ensemble: Ensemble, protocol: str, waiters: int) -> None:
    """By the servers' statistics: one of them, or all of them with the protocol "single"."""
    woken = 1 if protocol == "queue" else waiters
    asyncio.run(_release_before(ensemble, fresh(ensemble, protocol=protocol), waiters, woken))


async def _release_before(ensemble: Ensemble, url: str, waiters: int, woken: int) -> None:
    clients = [leaselock.AsyncClient(url) for _ in range(waiters + 1)]
    first, *others = (client.lock("a") for client in clients)
    lease = await first.acquire()
    assert lease is not None
    waiting = [asyncio.create_task(lock.acquire()) for lock in others]
    await _until(lambda: ensemble.total("zk_watch_count") >= waiters)
    before = await asyncio.to_thread(ensemble.total, FIRED)
    await lease.release()
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    await _until(lambda: ensemble.total(FIRED) >= before + woken)
    assert await asyncio.to_thread(ensemble.total, FIRED) == before + woken
    await asyncio.gather(*(client.close() for client in clients))
    await asyncio.gather(*waiting, return_exceptions=True)


async def _until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, condition)


def test_sequence_numbers_that_overflow_keep_their_order(ensemble: Ensemble, witness: Any) -> None:
    """2147483647 is older than -2147483648 (hazard I4)."""
    url = fresh(ensemble)
    folder = f"{parsed(url).root}/a"
    witness.ensure_path(folder)
    for text in ("older__lock__2147483647", "newer__lock__-2147483648"):
        owner = text.partition("_")[0].encode()
        witness.create(f"{folder}/{text}", owner, ephemeral=True)
    with leaselock.Client(url) as client:
        lock = client.lock("a")
        holder, (waiter,) = lock.holder(), lock.waiters()
        assert holder is not None
        assert (holder.label, waiter.label) == ("older", "newer")
        client.break_lock("a", token=holder.token)
        assert witness.get_children(folder) == ["newer__lock__-2147483648"]


def test_a_token_rises_when_the_folder_was_removed(ensemble: Ensemble, witness: Any) -> None:
    """The sequence numbers restart at 0, the transaction ids do not (hazard I5)."""
    url = fresh(ensemble)
    with leaselock.Client(url) as client:
        tokens = []
        for _ in range(3):
            with client.lock("a") as lease:
                tokens.append(lease.token)
            assert client.gc() == 1
            witness.sync("/")  # its server may lag behind
            assert witness.get_children(parsed(url).root) == ["%layout"]
        assert tokens == sorted(set(tokens))


def test_a_folder_may_be_removed_at_any_moment(ensemble: Ensemble) -> None:
    """The servers do that with an empty container node (hazard I8)."""
    url, done = fresh(ensemble), threading.Event()
    with leaselock.Client(url) as client, leaselock.Client(url) as sweeper:
        swept: list[int] = []

        def sweep() -> None:
            while not done.is_set():
                swept.append(sweeper.gc())

        thread = threading.Thread(target=sweep)
        thread.start()
        for _ in range(150):
            with client.lock("a") as lease:
                lease.ensure()
        done.set()
        thread.join()
        assert sum(swept) > 0


@pytest.mark.parametrize(("asked", "given"), [(0.1, 0.2), (3.0, 3.0), (100.0, 60.0)])
def test_the_servers_decide_the_session_timeout(
    ensemble: Ensemble, asked: float, given: float
) -> None:
    """A lease is valid for half of the negotiated timeout (hazard B14)."""
    expected = {"ok" if asked == given else "warn"}
    with leaselock.Client(fresh(ensemble, timeout=asked)) as client:
        for _ in range(2):
            assert eventually_granted(client.lock("a", lease=600.0)) <= given / 2
        eventually(lambda: {f.level for f in client.doctor() if "session" in f.what} == expected)


def eventually_granted(lock: leaselock.Lock) -> float:
    """Return for how long the lock is granted. The shortest sessions may end in the meantime."""
    while True:
        with contextlib.suppress(leaselock.LeaseLost, StoreError), lock as lease:
            return lease.remaining


def test_credentials_keep_others_out(ensemble: Ensemble) -> None:
    url = fresh(ensemble, auth="digest:me:secret")
    stranger = leaselock.Client(url.replace("me:secret", "you:guess"))
    with leaselock.Client(url) as client, stranger:
        assert "secret" not in repr(client)
        with client.lock("a"):
            with pytest.raises(NotApplied, match="NoAuth"):
                stranger.lock("a").acquire(timeout=60.0)
            with pytest.raises(NotApplied, match="NoAuth"):
                stranger.break_lock("a")
        assert "fail" in [finding.level for finding in stranger.doctor()]


def test_a_store_is_opened_with_a_kazoo_client(ensemble: Ensemble, witness: Any) -> None:
    """Its chroot is the root. It is neither used nor changed, and need not be started."""
    theirs = KazooClient(f"{ensemble.hosts}/of/theirs", timeout=3.0)
    with leaselock.Client(theirs) as client, client.lock("a"):
        assert len(witness.get_children("/of/theirs/a")) == 1
        assert not theirs.connected
    with pytest.raises(TypeError, match="KazooClient"):
        leaselock.Client(theirs.handler)


def test_maintenance(ensemble: Ensemble, witness: Any) -> None:
    url = fresh(ensemble)
    root = parsed(url).root
    with leaselock.Client(url) as client:
        assert client.setup(dry_run=True) == [f"create {root}"]
        assert witness.exists(root) is None
        assert client.setup() == [f"create {root}"]
        assert client.setup() == []
        witness.create(f"{root}/%not ours")
        with client.lock("a"), client.lock("b"):
            assert client.gc() == 0
        assert client.gc() == 2
        witness.sync(root)  # it may ask another server, which may not know yet
        assert set(witness.get_children(root)) == {"%layout", "%not ours"}
        assert not [f for f in client.doctor() if f.level == "fail"]


def test_a_hold_cannot_be_detached(ensemble: Ensemble) -> None:
    with leaselock.Client(fresh(ensemble)) as client, client.lock("a") as lease:
        with pytest.raises(NotApplied, match="session"):
            lease.detach()
        lease.ensure()


def sockets(kazoo: Any) -> set[str]:
    """The sockets that kazoo has open."""
    private = kazoo._connection
    found = (private._socket, private._read_sock, private._write_sock)
    return {os.readlink(f"/proc/self/fd/{one.fileno()}") for one in found if one is not None}


def links() -> Iterator[str]:
    """The descriptors that this process has open."""
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{descriptor}")


def test_a_forked_child_shares_no_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        client = leaselock.Client(f"zookeeper://127.0.0.1:{port}/x?timeout=60", op_timeout=0.3)
        with pytest.raises(NotApplied, match="reached"):
            client.lock("a").acquire()
        kazoo = connection_of(client).client
        eventually(lambda: len(sockets(kazoo)) == 3)
        ours = sockets(kazoo)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            os._exit(len(ours & set(links())))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        client.close()


@pytest.mark.parametrize("accepts", [True, False])
def test_a_client_is_closed_while_the_server_is_silent(
    accepts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before there is a session: the server is frozen, or the network drops everything."""
    monkeypatch.setattr(connection, "CLOSE_TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=8 if accepts else 0) as silent:
        address = silent.getsockname()
        sockets = [] if accepts else [socket.create_connection(address)]
        client = leaselock.Client(
            f"zookeeper://127.0.0.1:{address[1]}/x?timeout=60", op_timeout=0.3
        )
        with pytest.raises(NotApplied, match="reached"):
            client.lock("a").acquire()
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < 30
        for one in sockets:
            one.close()


def test_a_request_that_meets_the_close_of_its_client_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that closes the connection may come between its start and the request."""
    closed = BlockingConnection(parsed("zookeeper://127.0.0.1:1/locks"), system_env.now)
    monkeypatch.setattr(closed, "start", lambda: None)
    with pytest.raises(StoreError, match="the session is over"):
        closed.call(Batch((Read("/locks"),), 0), FOREVER)
    assert not closed.unanswered


def test_events_of_a_closed_client_are_ignored() -> None:
    """Its thread may end after the next client of the same connection has begun."""
    made = connection.BlockingConnection(parsed("zookeeper://127.0.0.1:1/x"), time.monotonic)
    mailbox = Mailbox()
    made.subscribe(mailbox)
    made.start()
    old = made.client
    made.close()
    made.session = 7
    made._state_changed(old, "LOST")
    assert (made.session, mailbox.take()) == (7, ())


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
def test_the_two_protocols_exclude_each_other(ensemble: Ensemble) -> None:
    """A lock that one of them holds cannot be acquired by the other."""
    url = fresh(ensemble)
    with leaselock.Client(url) as client, leaselock.Client(url) as other:
        simple = other.lock("a", protocol="single")
        with client.lock("a"), pytest.raises(NotApplied, match="queue"):
            simple.acquire(timeout=60.0)
        with simple, pytest.raises(NotApplied):
            client.lock("a").acquire(timeout=60.0)
        eventually(lambda: not client.lock("a").locked())


def test_single_warns_of_the_thundering_herd(ensemble: Ensemble) -> None:
    herd = pytest.warns(leaselock.UnsafeProtocolWarning, match="every waiter")
    with leaselock.Client(fresh(ensemble)) as client, herd:
        client.lock("a", protocol="single")
