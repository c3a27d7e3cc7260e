"""A program that uses the public interface. mypy and pyright must find the same types in it.

It is not run: tests/test_package.py has it checked as a user does.
"""

from __future__ import annotations

from typing import assert_type

import leaselock
from leaselock import AsyncClient, AsyncLease, Client, Holder, Lease, LockInfo, Waiter


def threads(client: Client) -> None:
    """The interface for threads."""
    with client.lock("order:5", lease=30.0, timeout=10) as lease:
        assert_type(lease, Lease)
        assert_type(lease.token, int)
        assert_type(lease.remaining, float)
        assert_type(lease.lost, bool)
    lock = client.lock("order:5")
    assert_type(lock.acquire(timeout=2.5), Lease)
    assert_type(lock.try_acquire(), Lease | None)
    assert_type(lock.holder(), Holder | None)
    assert_type(lock.waiters(), list[Waiter])
    assert_type(client.locks(), list[LockInfo])
    assert_type(client.break_lock("order:5"), Holder | None)
    assert_type(client.once("report", every=900), Lease | None)

    @lock
    def decorated(number: int) -> str:
        return str(number)

    @client.guard("bill:{user}")
    def waits(user: int) -> str:
        return str(user)

    @client.guard("bill:{user}", busy="skip")
    def skips(user: int) -> str:
        return str(user)

    assert_type(decorated(5), str)
    assert_type(waits(5), str)
    assert_type(skips(user=5), str | None)


async def tasks(client: AsyncClient) -> None:
    """The interface for asyncio."""
    async with client.lock("order:5") as lease:
        assert_type(lease, AsyncLease)
        await lease.extend(60.0)
    lock = client.lock("order:5")
    assert_type(await lock.acquire(timeout=2.5), AsyncLease)
    assert_type(await lock.try_acquire(), AsyncLease | None)
    assert_type(await client.locks(), list[LockInfo])

    @client.guard("bill:{user}", busy="skip")
    async def skips(user: int) -> str:
        return str(user)

    assert_type(await skips(5), str | None)


try:
    threads(Client("memory://"))
except leaselock.AcquireTimeout as error:
    assert_type(error.name, str)
    assert_type(error.holder, Holder | None)
    assert_type(error.waiting, int | None)
