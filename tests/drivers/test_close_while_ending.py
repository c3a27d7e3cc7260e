"""`close()` while threads and tasks end their bodies: nothing stays in the store.

`python -m verification.chaos.closing` does the same on every store, as often as it is told.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

USERS = 8
ROUNDS = 20
# Seconds: nothing is left because it was released, not because its lease has ended.
LEASE = 600.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Redis() as server:
        yield server.url


def left(url: str) -> list[str]:
    """Return the names that are held in the store."""
    with leaselock.Client(url, op_timeout=60.0) as other:
        return [lock.name for lock in other.locks() if lock.holder is not None]


def use(client: leaselock.Client, name: str, held: threading.Barrier) -> None:
    """Hold a lock until all do."""
    try:
        with client.lock(name, lease=LEASE):
            held.wait()
    except leaselock.LeaseLost:
        pass  # the client was closed first, and has released it


def close_beside_threads(url: str, number: int) -> None:
    """Close a client while the bodies of its threads end."""
    client = leaselock.Client(url)
    held = threading.Barrier(USERS + 1)
    names = [f"thread {number} {user}" for user in range(USERS)]
    threads = [threading.Thread(target=use, args=(client, name, held)) for name in names]
    for thread in threads:
        thread.start()
    held.wait()
    client.close()
    for thread in threads:
        thread.join()


async def use_in_task(client: leaselock.AsyncClient, name: str, held: asyncio.Barrier) -> None:
    """Hold a lock until all do."""
    try:
        async with client.lock(name, lease=LEASE):
            await held.wait()
    except (leaselock.LeaseLost, asyncio.CancelledError):
        pass  # the client was closed first, and has released it


async def close_beside_tasks(url: str, number: int) -> None:
    """Close a client while the bodies of its tasks end."""
    client = leaselock.AsyncClient(url)
    held = asyncio.Barrier(USERS + 1)
    names = [f"task {number} {user}" for user in range(USERS)]
    tasks = [asyncio.create_task(use_in_task(client, name, held)) for name in names]
    await held.wait()
    await client.close()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_threads(url: str) -> None:
    for number in range(ROUNDS):
        close_beside_threads(url, number)
        assert left(url) == []


def test_tasks(url: str) -> None:
    for number in range(ROUNDS):
        asyncio.run(close_beside_tasks(url, number))
        assert left(url) == []
