"""How few connections a client has by protocol "lease", and which request gets one first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.backends.sql.stage import Stage

import leaselock
from leaselock._backends.sql.store import LeaseBackend, store_of
from leaselock._backends.sql.url import parsed
from leaselock._core.contract.backend import Acquire, Claim, PoolExhausted

if TYPE_CHECKING:
    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

CLAIM = Claim("a", "client:1", "client", 30.0, "{}", 0.0)


def test_many_waiters_of_a_client_have_four_connections(server: Postgres | MariaDB) -> None:
    stage = Stage(server, "lease")

    async def main() -> int:
        async with leaselock.AsyncClient(stage.url) as client:

            async def one() -> None:
                async with client.semaphore("s", 5):
                    await asyncio.sleep(0)

            await asyncio.gather(*(one() for _ in range(40)))
            return len(stage.sessions())

    assert asyncio.run(main()) <= 4


def test_half_of_the_time_is_left_for_the_server() -> None:
    """A request that had its connection at the last moment failed as if the server were away."""
    store = store_of(parsed("postgresql://localhost/nowhere?pool=1"), lambda: 100.0)
    taken = store.pool.limit.enter_now()
    request = store.request(Acquire(CLAIM, wait=True), 104.0).__await__()
    effect = next(request)
    assert (taken is not None, effect.until) == (True, 102.0)
    with pytest.raises(PoolExhausted):
        request.send(False)


def test_a_notified_waiter_asks_before_those_that_only_look() -> None:
    """It was granted its lock for two seconds."""
    backend = store_of(parsed("postgresql://localhost/nowhere?pool=1"), lambda: 0.0).backend(
        "lease"
    )
    assert isinstance(backend, LeaseBackend)
    taken = backend.store.pool.limit.enter_now()
    other = CLAIM._replace(id="client:2")
    for claim in (other, CLAIM):
        backend.expect_wakeup(claim)
    backend.wake([CLAIM.id])
    requests = [
        backend.send(Acquire(claim, wait=True), 1.0).__await__() for claim in (other, CLAIM, CLAIM)
    ]
    signals = [next(request).signal for request in requests]
    assert taken is not None
    backend.store.pool.limit.leave(taken)
    assert [signal.is_set for signal in signals] == [False, True, False]
    backend.wake_all()  # messages may be missing: none is known to be granted
    backend.wake([CLAIM.id])
    backend.forget(CLAIM)
    assert backend.notified == set()
    for request in requests:
        request.close()
