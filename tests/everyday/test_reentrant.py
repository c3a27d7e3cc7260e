"""An owner that acquires a lock again that it holds, or has lost."""

from __future__ import annotations

import asyncio

import pytest
from testkit.servers.process import eventually

import leaselock


def test_second_acquire_without_reentrancy_raises_already_held(file: str) -> None:
    with leaselock.Client(file) as client:
        lock = client.lock("a", reentrant=False)
        with lock, pytest.raises(leaselock.AlreadyHeld) as raised:
            lock.acquire()
        assert raised.value.name == "a"
        assert isinstance(raised.value, leaselock.LeaselockError)


def test_acquire_after_loss_reports_the_loss(file: str) -> None:
    with leaselock.Client(file) as client:
        lock = client.lock("a", reentrant=False, lease=0.5, renew=False)
        lease = lock.acquire()
        assert lease is not None
        eventually(lambda: lease.lost)
        with pytest.raises(leaselock.LeaseLost):
            lock.acquire()


def test_second_acquire_in_asyncio_raises_already_held(file: str) -> None:
    async def main() -> None:
        async with leaselock.AsyncClient(file) as client:
            lock = client.lock("a", reentrant=False)
            async with lock:
                with pytest.raises(leaselock.AlreadyHeld):
                    await lock.acquire()

    asyncio.run(main())
