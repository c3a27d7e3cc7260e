"""Connections that are terminated, and waiters that give up, in each protocol.

Invariants: a client is notified of its loss without sending a request, the next token is greater,
and nothing is left on the server.
"""

from __future__ import annotations

import asyncio
import select
import time
from contextlib import closing

import pytest
from testkit.servers.process import eventually
from tests.backends.rivals import Waiter, loss_time, take
from tests.backends.sql.stage import Stage
from tests.pace import pace

import leaselock

LOCK = "a"
# What may be added, multiplied by the pace.
SLACK = 2.0


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
