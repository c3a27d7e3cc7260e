"""Dying servers, partitions, lost replies: no overlap, losses reported in time, no node left."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.servers.process import HOST, eventually
from tests.backends.zookeeper.zoo import (
    SESSION,
    Waiter,
    Zoo,
    connection_of,
    has_pending_releases,
    loss_time,
    take,
)

import leaselock
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

# Longer: LEASELOCK_ZOO_TRIES=10000.
TRIES = int(os.environ.get("LEASELOCK_ZOO_TRIES", "300"))


@pytest.fixture(scope="module")
def zoo() -> Iterator[Zoo]:
    with Zoo() as made:
        yield made


@pytest.fixture(autouse=True)
def whole(zoo: Zoo) -> Iterator[None]:
    """Repair the ensemble and close all clients after each test."""
    yield
    zoo.heal()
    zoo.ensemble.start()
    for client in zoo.clients:
        client.close()
    zoo.clients.clear()


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_lock_survives_the_death_of_a_server(zoo: Zoo, role: str) -> None:
    name = f"a {role} dies"
    holder, rival = zoo.client(timeout=6), zoo.client(timeout=6)
    lease = take(holder, name)
    waiter = Waiter(rival, name)
    eventually(lambda: len(zoo.nodes(name)) == 2)
    ensemble = zoo.ensemble
    dead = ensemble.leader() if role == "leader" else ensemble.followers()[0]
    dead.running().kill()
    eventually(lambda: any(server.role() == "leader" for server in ensemble.alive()))
    assert waiter.granted == float("inf")
    lease.ensure()
    lease.release()
    assert waiter.join().token > lease.token
    waiter.join().release()


def test_all_servers_stop_and_start_again(zoo: Zoo) -> None:
    """The holder loses its lease, the waiter is served, and no node is left."""
    holder, rival = zoo.client(), zoo.client()
    lease = take(holder, "all stop")
    when, waiter = loss_time(lease), Waiter(rival, "all stop")
    eventually(lambda: len(zoo.nodes("all stop")) == 2)
    stopped = time.monotonic()
    zoo.ensemble.stop()
    eventually(lambda: when() < float("inf"))
    assert when() - stopped < SESSION
    zoo.ensemble.start()
    following = _recovered(waiter, rival)
    assert following.token > lease.token
    following.release()
    with pytest.raises(leaselock.LeaseLost):
        lease.release()
    eventually(lambda: zoo.nodes("all stop") == [])
    take(holder, "all stop").release()


def _recovered(waiter: Waiter, client: leaselock.Client) -> leaselock.Lease:
    """Its lease. The waiter may get OutcomeUnknown if the store was away for too long."""
    try:
        return waiter.join()
    except StoreError:
        return take(client, waiter.lock.name)


def test_a_short_partition_loses_no_lease(zoo: Zoo) -> None:
    """Shorter than the remaining validity of the last proof; the session continues."""
    client = zoo.client(through=True, timeout=8)
    lease = take(client, "short")
    zoo.silence()
    time.sleep(0.8)
    lease.ensure()
    zoo.heal()
    ended = time.monotonic() + 6.0
    eventually(lambda: lease.lost or time.monotonic() > ended)
    lease.ensure()
    lease.release()


def test_a_long_partition_is_reported_before_another_client_holds(zoo: Zoo) -> None:
    client, rival = zoo.client(through=True), zoo.client()
    lease = take(client, "long")
    when, waiter = loss_time(lease), Waiter(rival, "long")
    eventually(lambda: len(zoo.nodes("long")) == 2)
    zoo.silence()
    following = waiter.join()
    assert when() < waiter.granted
    assert following.token > lease.token
    zoo.heal()
    with pytest.raises(leaselock.LeaseLost):
        lease.release()
    following.ensure()
    following.release()
    take(client, "long").release()
    eventually(lambda: zoo.nodes("long") == [])


def test_a_leader_without_a_majority_proves_nothing(zoo: Zoo) -> None:
    """It answers `sync` until it has missed its followers for a while."""
    leader, followers = zoo.ensemble.leader(), zoo.ensemble.followers()
    hosts = f"{HOST}:{leader.port}"
    alone: Any = KazooClient(hosts)
    with leaselock.Client(f"zookeeper://{hosts}/zoo", op_timeout=3.0) as client:
        assert client.lock("alone").waiters() == []
        alone.start()
        try:
            for server in followers:
                server.running().pause()
            alone.sync("/")
            with pytest.raises(StoreError):
                client.lock("alone").waiters()
        finally:
            for server in followers:
                server.running().cont()
        zoo.ensemble.wait_until_ready()
    alone.stop()
    alone.close()


def test_a_waiter_whose_session_ended_waits_again_at_the_tail(zoo: Zoo) -> None:
    holder, cut, other = zoo.client(timeout=10), zoo.client(through=True), zoo.client()
    lease = take(holder, "tail")
    waiter = Waiter(cut, "tail")
    eventually(lambda: len(zoo.nodes("tail")) == 2)
    zoo.silence()
    eventually(lambda: len(zoo.nodes("tail")) == 1)
    behind = Waiter(other, "tail")
    eventually(lambda: len(zoo.nodes("tail")) == 2)
    zoo.heal()
    eventually(lambda: len(zoo.nodes("tail")) == 3)
    lease.release()
    behind.join().release()
    waiter.join().release()
    assert behind.granted < waiter.granted


def test_a_lease_of_an_ended_session_is_lost_in_the_next_one(zoo: Zoo) -> None:
    """A lease belongs to the session in which it was granted (hazard I7)."""
    client, rival = zoo.client(), zoo.client()
    lease = take(client, "theft")
    waiter = Waiter(rival, "theft")
    eventually(lambda: len(zoo.nodes("theft")) == 2)
    session = connection_of(client).client.client_id
    thief = type(zoo.witness)(zoo.ensemble.hosts, client_id=session)
    thief.start()
    thief.stop()
    thief.close()
    following = waiter.join()
    eventually(lambda: lease.lost)
    fresh = Waiter(client, "theft")
    following.release()
    fresh.join().release()


@pytest.mark.parametrize("fault", ["cut_reply", "cut", "lose_reply"])
def test_a_lost_create_leaves_one_node_at_most(zoo: Zoo, fault: str) -> None:
    """The request or its reply is lost with the connection; the unique name shows which (I2)."""
    name = f"lost {fault}"
    client = zoo.client(through=True, op_timeout=15.0)
    take(client, "warm").release()
    for proxy in zoo.proxies:
        proxy.plan(fault, b"__lock__")
    lease = take(client, name)
    assert len(zoo.nodes(name)) == 1
    lease.release()
    eventually(lambda: zoo.nodes(name) == [])
    for proxy in zoo.proxies:
        proxy.faults.clear()


def test_a_create_that_arrives_after_its_release_creates_nothing(zoo: Zoo) -> None:
    """The session has moved to another server, so the old one's request is refused (D2)."""
    # The connection is given up after a third of the session, later than the client gives up.
    client, name = zoo.client(through=True, timeout=3 * SESSION), "late"
    take(client, "warm").release()
    faults = [proxy.hold(b"__lock__") for proxy in zoo.proxies]
    with pytest.raises(StoreError):
        client.lock(name).acquire(timeout=0.1)
    (held,) = (fault for fault in faults if fault.injected.is_set())
    for proxy, fault in zip(zoo.proxies, faults, strict=True):
        if fault is not held:
            proxy.faults.clear()
    # When the client can hold again, its release has been answered on another connection.
    take(client, "elsewhere").release()
    eventually(lambda: not has_pending_releases(client))
    held.pass_on()
    for _ in range(20):
        assert zoo.nodes(name) == []
        zoo.witness.set("/zoo", b"")


def test_timeouts_and_cancellations_leave_no_node(zoo: Zoo) -> None:
    """While the network fails now and then (hazard I3)."""
    chance = random.Random(5)
    with zoo.client().lock("busy"):
        asyncio.run(_give_up_often(zoo, chance))
        eventually(lambda: len(zoo.nodes("busy")) == 1)
    eventually(lambda: zoo.nodes("busy") == [])


async def _give_up_often(zoo: Zoo, chance: random.Random) -> None:
    async with leaselock.AsyncClient(zoo.url(through=True, timeout=8)) as client:
        left = TRIES
        while left > 0:
            tasks = [asyncio.create_task(_give_up(client, chance)) for _ in range(20)]
            await asyncio.sleep(chance.random() * 0.03)
            for task in tasks[::2]:
                task.cancel()
            if chance.random() < 0.1:
                for proxy in zoo.proxies:
                    await asyncio.to_thread(proxy.cut_all)
            await asyncio.gather(*tasks, return_exceptions=True)
            left -= len(tasks)
        await asyncio.to_thread(eventually, lambda: not has_pending_releases(client))


async def _give_up(client: leaselock.AsyncClient, chance: random.Random) -> None:
    assert await client.lock("busy").try_acquire(timeout=chance.random() * 0.02) is None
