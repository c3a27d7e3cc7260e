"""etcd: members that die, stop and are cut off, a full database, compaction, expired logins.

Invariants: a lock survives the loss of a minority of the members; a loss is reported before another
client can hold the lock; a waiter is served whatever becomes of its watch.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from testkit.polling import poll_until
from testkit.proxy import Proxy
from testkit.servers.etcd import Etcd
from testkit.servers.process import HOST, START_TIMEOUT, eventually
from tests.backends.rivals import Waiter, assert_survived, extended, loss_time, take

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

LEASE = 3.0
LONG = 60.0


@pytest.fixture(scope="module")
def trio() -> Iterator[Etcd]:
    with Etcd(3) as made:
        yield made


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start the members again that a test has ended."""
    yield
    if "trio" in request.fixturenames:
        request.getfixturevalue("trio").start()


def client_of(server: Etcd) -> leaselock.Client:
    return leaselock.Client(server.url("chaos"), op_timeout=10.0)


def queued(client: leaselock.Client, name: str, number: int) -> None:
    """Wait until *number* claims wait for the lock."""

    def all_there() -> bool:
        try:
            return len(client.lock(name).waiters()) == number
        except leaselock.StoreError:
            return False

    eventually(all_there)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_lock_survives_the_death_of_a_member(trio: Etcd, role: str) -> None:
    name = f"a {role} dies"
    with client_of(trio) as holder, client_of(trio) as rival:
        lease, waiter = take(holder, name), Waiter(rival, name)
        queued(holder, name, 1)
        leader = trio.leader()
        dead = leader if role == "leader" else next(m for m in trio.members if m is not leader)
        dead.running().kill()
        eventually(partial(extended, lease))
        assert waiter.granted == float("inf")
        lease.ensure()
        lease.release()
        assert waiter.join().token > lease.token
        waiter.join().release()


def test_a_member_that_stops_is_given_up(trio: Etcd) -> None:
    """Each member in turn is frozen: its connections stay open and are silent."""
    with client_of(trio) as holder, client_of(trio) as rival:
        for number, member in enumerate(trio.members):
            name = f"frozen{number}"
            lease, waiter = take(holder, name), Waiter(rival, name)
            queued(holder, name, 1)
            member.running().pause()
            try:
                eventually(partial(extended, lease))
                lease.release()
                granted = waiter.join()
                assert granted.token > lease.token
                granted.release()
            finally:
                member.running().cont()
            trio.wait_until_ready()


def test_a_majority_that_is_lost_is_a_loss_in_time(trio: Etcd) -> None:
    """The holder learns of it before its lease has ended in the store, and tokens go on."""
    with (
        leaselock.Client(trio.url("chaos"), op_timeout=1.0) as holder,
        leaselock.Client(trio.url("chaos"), op_timeout=1.0) as rival,
    ):
        lease = holder.lock("majority", lease=LEASE).acquire()
        when, began = loss_time(lease), time.monotonic()
        for member in trio.members[:2]:
            member.running().kill()
        with pytest.raises(leaselock.StoreError):
            rival.lock("majority").try_acquire()
        eventually(lambda: when() < float("inf"))
        assert when() - began < LEASE + 0.5
        trio.start()
        with rival.lock("majority", timeout=LONG) as grant:
            assert grant.token > lease.token
        with pytest.raises(leaselock.LeaseLost):
            lease.release()


def test_a_restart_of_all_members_ends_no_hold(trio: Etcd) -> None:
    with client_of(trio) as holder, client_of(trio) as rival:
        assert_survived(holder, rival, "restart", trio.restart)


@pytest.mark.parametrize("action", ["lose_request", "lose_reply", "cut", "cut_reply"])
@pytest.mark.parametrize("colour", ["threads", "asyncio"])
def test_a_lost_message_leaves_no_hold_without_an_owner(
    etcd: Etcd, action: str, colour: str
) -> None:
    """Each of the first writes of a pair is lost, or its reply; the lock is free afterwards."""
    with Proxy(etcd.members[0].port) as proxy, leaselock.Client(etcd.url("lost")) as witness:
        url = f"etcd://{HOST}:{proxy.port}/lost"
        for nth in (1, 2):
            name = f"{action} {colour} {nth}"
            fault = proxy.plan(action, b"kv/txn", nth)
            if colour == "threads":
                with leaselock.Client(url, op_timeout=4.0) as client:
                    take(client, name).release()
            else:
                asyncio.run(pair(url, name))
            fault.wait()
            with witness.lock(name, timeout=LONG):
                pass


async def pair(url: str, name: str) -> None:
    async with leaselock.AsyncClient(url, op_timeout=4.0) as client:
        lease = await client.lock(name).acquire(timeout=LONG)
        await lease.release()


def test_a_partition_is_a_loss_in_time_and_the_next_grant_is_later(etcd: Etcd) -> None:
    with Proxy(etcd.members[0].port) as proxy, leaselock.Client(etcd.url("cut")) as rival:
        url = f"etcd://{HOST}:{proxy.port}/cut"
        with leaselock.Client(url, op_timeout=1.0) as holder:
            lease = holder.lock("a", lease=LEASE).acquire()
            when, waiter = loss_time(lease), Waiter(rival, "a")
            queued(rival, "a", 1)
            proxy.silence()
            granted = waiter.join()
            assert when() < waiter.granted
            assert granted.token > lease.token
            proxy.heal()
            with pytest.raises(leaselock.LeaseLost):
                lease.release()
            granted.ensure()


def test_a_full_database_is_named_and_what_is_held_ends_in_time() -> None:
    with (
        Etcd(quota_backend_bytes=2**18) as server,
        leaselock.Client(server.url("full"), op_timeout=2.0) as client,
    ):
        lease = client.lock("a", lease=LEASE).acquire()
        when = loss_time(lease)
        eventually(lambda: server.fill("other/"))
        with pytest.raises(leaselock.StoreError, match="alarm disarm"):
            client.lock("b").try_acquire()
        eventually(lambda: when() < float("inf"))
        server.make_room("other/")
        with pytest.raises(leaselock.LeaseLost):
            lease.release()
        with client.lock("a", timeout=LONG) as grant:
            assert grant.token > lease.token


def test_waiters_are_served_through_compactions(etcd: Etcd) -> None:
    """The history of the keys is thrown away after every change."""
    with leaselock.Client(etcd.url("compact")) as client:
        lease = take(client, "a")
        for _ in range(5):
            waiter = Waiter(client, "a")
            queued(client, "a", 1)
            lease.release()
            etcd.compact()
            lease = waiter.join()
        lease.release()


def test_a_login_that_expires_is_renewed_while_a_lock_is_held() -> None:
    with Etcd(auth_token_ttl=1) as server:
        server.require_login()
        server.add_user("ann", "pw", "mine/")
        with leaselock.Client(server.url("mine", "ann:pw")) as client:
            lease = take(client, "a")
            for _ in range(3):
                waiter = Waiter(client, "a")
                queued(client, "a", 1)
                expire(server, client)
                lease.release()
                lease = waiter.join()
            lease.release()


def expire(server: Etcd, client: leaselock.Client) -> None:
    """Wait until the server has forgotten the login of the client. Each question renews the login,
    so the time between two is longer than its life and the server's interval of a second.
    """
    stores: Any = client._driver.parts
    token = stores[0].gateway.token
    assert poll_until(lambda: not server.knows_login(token), START_TIMEOUT, interval=3.0)


def test_a_wrong_password_is_an_error_at_once() -> None:
    with Etcd() as server:
        server.require_login()
        with leaselock.Client(server.url("mine", "ann:hidden-word")) as client:
            with pytest.raises(leaselock.NotApplied, match="invalid user ID") as caught:
                client.lock("a").acquire()
            assert caught.value.reason == "denied"
            assert "hidden-word" not in str(caught.value) + repr(client) + client.url


def test_processes_that_only_try_take_over_from_a_dead_one(etcd: Etcd) -> None:
    """Each client looks once, as cron does; the time of the store tells how long a hold is old."""
    url = etcd.url("cron")
    dead = leaselock.Client(url)
    lease = dead.lock("a", lease=LEASE, renew=False).acquire()
    began = time.monotonic()
    token = 0

    def taken() -> bool:
        nonlocal token
        with leaselock.Client(url) as client:
            found = client.lock("a").try_acquire()
            if found:
                token = found.token
                found.release()
            return bool(found)

    eventually(taken)
    assert time.monotonic() - began >= LEASE
    assert token > lease.token
    dead.close()
