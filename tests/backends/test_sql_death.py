"""Holders that die, connections that are terminated, bodies that fail, in each protocol.

Invariants: a client is notified of its loss without sending a request, the next token is greater,
and nothing is left on the server.
"""

from __future__ import annotations

import asyncio
import select
import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest
from testkit.servers.databases import emptied
from testkit.servers.process import eventually
from tests.backends.rivals import Waiter, loss_time, take
from tests.backends.sql import Stage
from tests.faults.contenders import LOCK, Contest
from tests.pace import pace

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

BILLION = 1_000_000_000
LEASE = 1.0
# What may be added; both are multiplied by the pace.
SLACK = 2.0


class Named(NamedTuple):
    """A store that has only a URL."""

    url: str


@pytest.fixture
def contest(stage: Stage) -> Iterator[Contest]:
    contest = Contest(Named(stage.url))
    yield contest
    contest.end()


@pytest.mark.parametrize(
    ("holder", "waiter"),
    [
        ("threads", "asyncio"),
        pytest.param("asyncio", "threads", marks=pytest.mark.variant),
    ],
)
def test_the_lock_of_a_killed_process_goes_to_the_next(
    holder: str, waiter: str, stage: Stage, contest: Contest
) -> None:
    """At once if the server notices the end of the connection, else when the lease ends."""
    lease = LEASE * pace()
    victim = contest.holder(holder, lease)
    first = victim.granted()
    successor = contest.waiter(waiter, lease)
    victim.process.kill()
    killed = time.monotonic_ns()
    second = successor.granted()
    after = (second.at - killed) / BILLION
    assert second.token > first.token
    assert after < SLACK * pace() + (lease if stage.protocol == "lease" else 0.0)
    successor.release()
    assert successor.read_line() == ["released"]


def test_a_holder_notices_the_end_of_its_connection(stage: Stage) -> None:
    """The loss is noticed without a request, and before the next grant."""
    if stage.protocol == "lease":
        pytest.skip("a lease does not end with a connection: the next test")
    lease = take(stage.client(), LOCK)
    when, waiter = loss_time(lease), Waiter(stage.client(), LOCK)
    eventually(lambda: len(stage.clients[0].lock(LOCK).waiters()) == 1)
    stage.cut(stage.holding())
    cut = time.monotonic()
    following = waiter.join()
    eventually(lambda: when() < float("inf"))
    assert when() - cut < SLACK * pace()
    assert lease.lost
    assert following.token > lease.token
    with pytest.raises(leaselock.LeaseLost):
        lease.ensure()
    with pytest.raises(leaselock.LeaseLost):
        lease.release()
    following.ensure()
    following.release()


def test_without_epoll_the_next_check_notices_the_loss(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(select, "epoll")
    if stage.protocol == "lease":
        pytest.skip("a lease does not end with a connection")
    lease = take(stage.client(), LOCK)
    stage.cut(stage.holding())
    eventually(lambda: lease.lost)
    take(stage.clients[0], LOCK + "b").release()


def test_the_end_of_its_connection_cancels_a_tasks_body(stage: Stage) -> None:
    if stage.protocol == "lease":
        pytest.skip("a lease does not end with a connection: the next test")

    async def scenario() -> None:
        async with leaselock.AsyncClient(stage.url) as client, client.lock(LOCK):
            await asyncio.to_thread(stage.cut, stage.holding())
            await asyncio.sleep(60.0)

    with pytest.raises(leaselock.LeaseLost):
        asyncio.run(scenario())


def test_a_lease_outlives_every_connection(server: object) -> None:
    """All connections are terminated twice; the lease is still renewed, and the waiter woken."""
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
    """The user gets that error, and the lock is free at once."""
    client = stage.client()
    with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"), client.lock(LOCK):
        raise psycopg.errors.UndefinedTable('relation "nowhere" does not exist')
    eventually(lambda: not stage.left(LOCK))
    assert not client.locks("*")
    take(stage.client(), LOCK, timeout=0.0).release()


def test_a_failing_statement_on_the_same_server(stage: Stage) -> None:
    """A failed transaction of the user does not affect the lock."""
    with stage.client().lock(LOCK) as lease:
        with pytest.raises(Exception, match="nowhere"):
            stage.server.query(f"SELECT * FROM {stage.table('nowhere')}")
        lease.ensure()
    eventually(lambda: not stage.left(LOCK))


@pytest.mark.parametrize("times", [5, pytest.param(20, marks=pytest.mark.statistical)])
def test_a_waiter_that_gives_up_leaves_nothing(stage: Stage, times: int) -> None:
    """A wait that timed out is no hold, even if the lock was released at that moment (J2)."""
    holder, rival = stage.client(), stage.client()
    for n in range(times):
        lease = take(holder, LOCK)
        waiter = Waiter(rival, LOCK, timeout=0.05)
        # The release shall come shortly before, with or after the end of the wait.
        time.sleep(0.03 + 0.04 / times * n)
        lease.release()
        waiter.thread.join()
        if waiter.lease is not None:
            waiter.lease.release()
        take(holder, LOCK).release()
    holder.close()
    rival.close()
    eventually(lambda: not stage.left(LOCK))


def test_a_request_to_a_frozen_server_times_out(server: Postgres | MariaDB) -> None:
    """The kernel accepts the connection, but the server never replies (hazard D13)."""
    with leaselock.Client(emptied(server), op_timeout=1.0) as client:
        server.running().pause()
        try:
            with pytest.raises(leaselock.StoreError):
                client.lock(LOCK).acquire(timeout=0.5)
        finally:
            server.running().cont()
        eventually(lambda: granted(client))


def granted(client: leaselock.Client) -> bool:
    """Return whether the lock can be acquired again."""
    try:
        return client.lock(LOCK).try_acquire() is not None
    except leaselock.StoreError:
        return False
