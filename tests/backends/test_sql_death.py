"""Holders that die, connections that are ended, bodies that fail, in each protocol.

Law: whoever has lost a lock is told without asking, the next one's token is greater, and nothing
stays behind on the server.
"""

from __future__ import annotations

import asyncio
import select
import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest
from tests.backends.rivals import Waiter, take, told
from tests.backends.sql import Stage
from tests.chaos.people import LOCK, Street
from tests.servers.databases import emptied
from tests.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.mariadb import MariaDB
    from tests.servers.postgres import Postgres

BILLION = 1_000_000_000
LEASE = 3.0
# What a loaded machine may add.
SLACK = 2.0


class Named(NamedTuple):
    """A store of which only the URL is known."""

    url: str


@pytest.fixture
def street(stage: Stage) -> Iterator[Street]:
    street = Street(Named(stage.url))
    yield street
    street.end()


@pytest.mark.parametrize(("holder", "waiter"), [("threads", "asyncio"), ("asyncio", "threads")])
def test_the_lock_of_a_killed_process_goes_to_the_next(
    holder: str, waiter: str, stage: Stage, street: Street
) -> None:
    """At once, where the server sees the connection end; else when the lease is over."""
    victim = street.holder(holder, LEASE)
    first = victim.granted()
    heir = street.waiter(waiter, LEASE)
    victim.process.kill()
    killed = time.monotonic_ns()
    second = heir.granted()
    after = (second.at - killed) / BILLION
    assert second.token > first.token
    assert after < SLACK + (LEASE if stage.protocol == "lease" else 0.0)
    heir.give_back()
    assert heir.await_wakeup() == ["released"]


def test_a_holder_whose_connection_is_ended_is_told(stage: Stage) -> None:
    """It learns of it without having asked anything, and before the next one is in."""
    if stage.protocol == "lease":
        pytest.skip("a lease does not end with a connection: the next test")
    lease = take(stage.client(), LOCK)
    when, waiter = told(lease), Waiter(stage.client(), LOCK)
    eventually(lambda: len(stage.clients[0].lock(LOCK).waiters()) == 1)
    stage.cut(stage.holding())
    cut = time.monotonic()
    following = waiter.join()
    eventually(lambda: when() < float("inf"), SLACK)
    assert when() - cut < SLACK
    assert lease.lost
    assert following.token > lease.token
    with pytest.raises(leaselock.LeaseLost):
        lease.ensure()
    with pytest.raises(leaselock.LeaseLost):
        lease.release()
    following.ensure()
    following.release()


def test_where_there_is_no_epoll_the_next_proof_of_life_tells(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(select, "epoll")
    if stage.protocol == "lease":
        pytest.skip("a lease does not end with a connection")
    lease = take(stage.client(), LOCK)
    stage.cut(stage.holding())
    eventually(lambda: lease.lost)
    take(stage.clients[0], LOCK + "b").release()


def test_a_task_whose_connection_is_ended_is_stopped_in_its_body(stage: Stage) -> None:
    if stage.protocol == "lease":
        pytest.skip("a lease does not end with a connection: the next test")

    async def story() -> None:
        async with leaselock.AsyncClient(stage.url) as client, client.lock(LOCK):
            await asyncio.to_thread(stage.cut, stage.holding())
            await asyncio.sleep(60.0)

    with pytest.raises(leaselock.LeaseLost):
        asyncio.run(story())


def test_a_lease_outlives_every_connection(server: object) -> None:
    """All are ended, twice: it is renewed on others, and the waiter is woken as before."""
    stage = Stage(server, "lease")  # type: ignore[arg-type]
    with closing(stage):
        _outlive(stage)


def _outlive(stage: Stage) -> None:
    lease = take(stage.client(), LOCK)
    waiter = Waiter(stage.client(), LOCK)
    eventually(lambda: len(stage.clients[0].lock(LOCK).waiters()) == 1)
    for _ in range(2):
        stage.cut(*stage.sessions())
        lease.extend(30.0)
    lease.ensure()
    assert waiter.granted == float("inf")
    lease.release()
    following = waiter.join()
    assert following.token > lease.token
    following.release()


def test_a_statement_that_fails_in_the_body_leaves_nothing(stage: Stage) -> None:
    """The user sees that error; and it can be locked again at once."""
    client = stage.client()
    with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"), client.lock(LOCK):
        raise psycopg.errors.UndefinedTable('relation "nowhere" does not exist')
    eventually(lambda: not stage.left(LOCK))
    assert not client.locks("*")
    take(stage.client(), LOCK, timeout=0.0).release()


def test_a_failing_statement_on_the_same_server(stage: Stage) -> None:
    """A transaction of the user's that fails has nothing to do with ours."""
    with stage.client().lock(LOCK) as lease:
        with pytest.raises(Exception, match="nowhere"):
            stage.server.query(f"SELECT * FROM {stage.table('nowhere')}")
        lease.ensure()
    eventually(lambda: not stage.left(LOCK))


def test_whoever_stops_waiting_leaves_nothing(stage: Stage) -> None:
    """A wait that was over in vain is no hold, though the lock came free just then (J2)."""
    holder, rival = stage.client(), stage.client()
    for n in range(20):
        lease = take(holder, LOCK)
        waiter = Waiter(rival, LOCK, timeout=0.05)
        time.sleep(0.03 + 0.002 * n)
        lease.release()
        waiter.thread.join()
        if waiter.lease is not None:
            waiter.lease.release()
        take(holder, LOCK).release()
    holder.close()
    rival.close()
    eventually(lambda: not stage.left(LOCK))


def test_a_frozen_server_is_given_up_in_time(server: Postgres | MariaDB) -> None:
    """The kernel takes the connection for it, and nobody ever answers (hazard D13)."""
    with leaselock.Client(emptied(server), op_timeout=1.0) as client:
        server.running().pause()
        try:
            with pytest.raises(leaselock.StoreError):
                client.lock(LOCK).acquire(timeout=0.5)
        finally:
            server.running().cont()
        eventually(lambda: granted(client))


def granted(client: leaselock.Client) -> bool:
    """Whether it is to be had again."""
    try:
        return client.lock(LOCK).acquire(timeout=0.0) is not None
    except leaselock.StoreError:
        return False
